
// the features of a row {column: value}; dates are Date objects, or seconds since 1970
function features(row) {
  return model.columns.flatMap(({ name, origin, levels, unseen }) => {
    const value = row[name];
    if (!levels.length) return [(value instanceof Date ? value / 1000 : Number(value)) - origin];
    const at = levels.indexOf(String(value));
    if (at < 0 && unseen === "error") throw new RangeError(`${name} has no level ${value}`);
    const own = levels.map((_, j) => Number(j === at));
    return unseen === "other" ? [...own, Number(at < 0)] : own;
  });
}

export function predict(x) {
  return observed(model, model.columns.length && !Array.isArray(x) ? features(x) : x);
}
