const LEAVES = [
  (s) => Math.exp(-0.5 * s),
  (s) => Math.exp(-Math.sqrt(s)),
  (s) => (1 + Math.sqrt(3 * s)) * Math.exp(-Math.sqrt(3 * s)),
  (s) => (1 + Math.sqrt(5 * s) + (5 * s) / 3) * Math.exp(-Math.sqrt(5 * s)),
  (s, a) => Math.exp(-a * Math.log1p(s / (2 * a))),
  (s) => s,
];

// a leaf at all functions, and at x itself
function leafValues({ kind, columns, precisions, shape }, { centers, origin }, x) {
  const values = new Float64Array(centers[0].length), linear = kind === 5, leaf = LEAVES[kind];
  let own = linear ? 0 : 1;
  for (let i = 0; i < columns.length; i++) {
    const k = columns[i], z = centers[k], p = precisions[i], o = origin[k], t = p[0] * (x[k] - o);
    if (linear) {
      own += t * (x[k] - o);
      for (let j = 0; j < z.length; j++) values[j] += t * (z[j] - o);
    } else if (p.length > 1) for (let j = 0; j < z.length; j++) values[j] += p[j] * (x[k] - z[j]) ** 2;
    else for (let j = 0; j < z.length; j++) values[j] += p[0] * (x[k] - z[j]) ** 2;
  }
  for (let j = 0; j < values.length; j++) values[j] = leaf(values[j], shape);
  return [values, own];
}

// x with its hats or warps computed anew, if there are any
function withHats({ hats, origin }, x) {
  const rising = ([k, a, b]) => (x[k] - a) / (b - a), falling = ([k, , b, c]) => (c - x[k]) / (c - b);
  const hat = (h) => h[2] === h[3] ? Math.asinh(rising(h)) : Math.max(0, Math.min(rising(h), falling(h)));
  return hats.length ? [...x.slice(0, origin.length - hats.length), ...hats.map(hat)] : x;
}

// the functions at x, and k(x, x)
function kernel(functions, given) {
  const x = withHats(functions, given);
  const k = new Float64Array(functions.centers[0].length);
  let whole = 0;
  for (const { variance, leaves } of functions.terms) {
    const product = new Float64Array(k.length).fill(variance);
    let term = variance;
    for (const leaf of leaves) {
      const [values, own] = leafValues(leaf, functions, x);
      for (let j = 0; j < k.length; j++) product[j] *= values[j];
      term *= own;
    }
    for (let j = 0; j < k.length; j++) k[j] += product[j];
    whole += term;
  }
  return [k, whole];
}

// |Tk|² of a lower triangle, its rows one after the other
function squaredProduct(T, k) {
  let squares = 0, at = 0;
  for (let j = 0; j < k.length; j++) {
    let a = 0, b = 0, c = 0, d = 0, i = 0; // sums that do not wait for each other
    for (; i + 3 <= j; i += 4, at += 4) {
      a += T[at] * k[i];
      b += T[at + 1] * k[i + 1];
      c += T[at + 2] * k[i + 2];
      d += T[at + 3] * k[i + 3];
    }
    for (; i <= j; i++) a += T[at++] * k[i];
    squares += (a + b + (c + d)) ** 2;
  }
  return squares;
}

function latent(model, x) {
  const values = model.functions.map((functions) => kernel(functions, x));
  return model.processes.map((process) => {
    const [k, whole] = values[process.functions], { T, share, floor } = process;
    let mean = process.bias;
    for (let i = 0; i < process.slope.length; i++) mean += process.slope[i] * x[i];
    for (let j = 0; j < k.length; j++) mean += process.alpha[j] * k[j];
    const squares = squaredProduct(T, k) - (process.S ? squaredProduct(process.S, k) : 0);
    return { mean, variance: floor + (share > 0 ? share * whole - squares : squares) };
  });
}

// log of the normal distribution function at -t, t not negative
function logTail(t) {
  let sum = 0;
  for (let i = 0; i < MILLS[0].length; i++) sum += MILLS[1][i] * Math.exp(-t * MILLS[0][i]);
  return -0.5 * t * t - 0.5 * Math.log(2 * Math.PI) + Math.log(sum);
}

function observed(model, x) {
  const f = latent(model, x);
  if (model.kind !== "classes") {
    let variance = Math.max(f[0].variance, 0);
    if (model.kind === "learned noise") variance += Math.exp(f[1].mean + 0.5 * f[1].variance);
    return { mean: f[0].mean, std: Math.sqrt(variance) };
  }
  const odds = f.map(({ mean, variance }) => {
    const z = mean / Math.sqrt(model.noise + Math.max(variance, 0)), tail = logTail(Math.abs(z));
    return Math.sign(z) * (Math.log1p(-Math.exp(tail)) - tail);
  });
  if (odds.length === 1) odds.unshift(0);
  const most = Math.max(...odds), weights = odds.map((v) => Math.exp(v - most));
  const sum = weights.reduce((a, b) => a + b);
  return Object.fromEntries(model.classes.map((label, c) => [label, weights[c] / sum]));
}
