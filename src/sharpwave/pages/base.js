"use strict";

// What every page needs: the theme switch, how numbers are written, and small helpers.

const root = document.documentElement;
document.getElementById("theme").addEventListener("click", () => {
  const dark = getComputedStyle(root).colorScheme === "dark" ||
    (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = dark ? "light" : "dark";
});

// Like text.number: significant digits, thousands apart, a true minus.
function number(value, digits = 4) {
  if (value === 0) return "0";
  const exponent = Math.floor(Math.log10(Math.abs(value)));
  if (exponent < -3 || exponent > 8) {
    return value.toExponential(digits - 2).replace(/\.?0+e/, "e").replace("e+", "e").replaceAll("-", "−");
  }
  const maximumFractionDigits = Math.max(digits - 1 - exponent, 0);
  return value.toLocaleString("en-US", { maximumFractionDigits }).replace("-", "−");
}

function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}

const share = (value, [low, high]) => (value - low) / (high - low);

function element(tag, className, parent) {
  const made = document.createElement(tag);
  made.className = className;
  parent.append(made);
  return made;
}
