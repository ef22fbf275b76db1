// @ts-check
// The arithmetic of charts. Pure.

/**
 * Round numbers from 0 to at least `largest`, at most `most` steps.
 * @param {number} largest
 * @param {number} [most]
 */
export function ticks(largest, most = 4) {
  const rough = Math.max(largest, 1) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? rough);
  const found = [0];
  while (found[found.length - 1] < largest) found.push(found[found.length - 1] + step);
  return found.length > 1 ? found : [0, step];
}

/**
 * Round ages in seconds on an axis that long, the youngest first.
 * @param {number} seconds
 * @param {number} [most]  steps
 */
export function ages(seconds, most = 5) {
  const step = [15, 30, 60, 120].find((each) => Math.floor(seconds / each) <= most) ?? 300;
  return Array.from({ length: Math.floor(seconds / step) + 1 }, (_, at) => at * step);
}

/**
 * Round moments of the local clock on an axis.
 * @param {number} beginUs
 * @param {number} endUs
 * @param {number} [most]  steps
 */
export function moments(beginUs, endUs, most = 6) {
  const seconds = (endUs - beginUs) / 1e6;
  const step = [1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200].find((each) => seconds / each <= most + 0.5) ?? Math.ceil(seconds / most / 86_400) * 86_400;
  const ahead = -new Date(endUs / 1000).getTimezoneOffset() * 60;
  const first = Math.ceil((beginUs / 1e6 + ahead) / step);
  return Array.from({ length: Math.max(0, Math.floor((endUs / 1e6 + ahead) / step) - first + 1) }, (_, at) => ((first + at) * step - ahead) * 1e6);
}

/**
 * Which points are joined by a line: it is broken where a value is missing, and before some points.
 * @param {(number | null | undefined)[]} values
 * @param {number[]} gaps  numbers of points before which nothing was measured
 * @returns {number[][]}  the numbers of points
 */
export function runs(values, gaps) {
  /** @type {number[][]} */
  const found = [];
  let last = -1;
  values.forEach((value, at) => {
    if (value === null || value === undefined) return;
    if (last < 0 || last !== at - 1 || gaps.includes(at)) found.push([]);
    found[found.length - 1].push(at);
    last = at;
  });
  return found;
}

/**
 * A line through points, as the `d` of a path.
 * @param {number[]} xs
 * @param {number[]} ys
 */
export function line(xs, ys) {
  return xs.map((x, at) => `${at ? "L" : "M"}${x.toFixed(1)} ${ys[at].toFixed(1)}`).join("");
}

/**
 * What lies between such a line and the ground.
 * @param {number[]} xs
 * @param {number[]} ys
 * @param {number} ground
 */
export function area(xs, ys, ground) {
  return xs.length ? `${line(xs, ys)}L${xs[xs.length - 1].toFixed(1)} ${ground}L${xs[0].toFixed(1)} ${ground}Z` : "";
}

/**
 * How high a curve is that leaves one point and reaches the other level, halfway bent, at some x between them.
 * @param {[number, number]} from
 * @param {[number, number]} to
 * @param {number} x
 */
export function heightAt([x1, y1], [x2, y2], x) {
  const part = x2 === x1 ? 0.5 : (x - x1) / (x2 - x1);
  let low = 0;
  let high = 1;
  for (let round = 0; round < 20; round += 1) {
    const t = (low + high) / 2;
    const reached = 1.5 * (1 - t) * (1 - t) * t + 1.5 * (1 - t) * t * t + t * t * t;
    if (reached < part) low = t;
    else high = t;
  }
  return y1 + (y2 - y1) * low * low * (3 - 2 * low);
}

/**
 * Which of the sorted numbers is nearest.
 * @param {number[]} sorted
 * @param {number} wanted
 */
export function nearest(sorted, wanted) {
  let low = 0;
  let high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - sorted[low - 1] < sorted[low] - wanted ? low - 1 : low;
}
