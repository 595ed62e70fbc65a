
// the features of a row {column: value}; dates are Date objects, or seconds since 1970
function features(row) {
  return model.columns.flatMap(({ name, origin, levels, unseen }) => {
    const value = row[name];
    const missing = value === undefined || value === null || String(value).trim() === "";
    const number = missing ? NaN : value instanceof Date ? value / 1000 : Number(value);
    if (missing || (!levels.length && !Number.isFinite(number))) throw new RangeError(`${name} is ${value}`);
    if (!levels.length) return [number - origin];
    const at = levels.indexOf(String(value));
    if (at < 0 && unseen === "error") throw new RangeError(`${name} has no level ${value}`);
    const own = levels.map((_, j) => Number(j === at));
    return unseen === "other" ? [...own, Number(at < 0)] : own;
  });
}

export function predict(x) {
  const given = model.columns.length && !Array.isArray(x) ? features(x) : x;
  if (given.length !== model.features.length || !given.every(Number.isFinite))
    throw new RangeError(`${model.features.length} numbers are needed: ${model.features.join(", ")}`);
  return observed(model, given);
}
