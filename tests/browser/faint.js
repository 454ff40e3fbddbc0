// Texts on this page whose contrast to what lies under them is below 4.5 to 1 (WCAG 2, level AA).
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const faint = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent.trim();
    const element = walk.currentNode.parentElement;
    if (!text || element.closest("svg, option, :disabled, .skip") || !element.checkVisibility()) continue;
    const under = ground(element);
    const contrast = ratio(over(rgba(getComputedStyle(element).color), under), under);
    if (contrast < 4.5) faint.add(`${contrast.toFixed(1)}: ${text.slice(0, 40)} (${element.className || element.tagName})`);
  }
  return [...faint];

  function rgba(colour) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return { rgb: [red, green, blue], alpha: alpha / 255 };
  }

  function over(top, under) {
    return top.rgb.map((each, n) => each * top.alpha + under[n] * (1 - top.alpha));
  }

  function ground(element) {
    const layers = [];
    for (let each = element; each; each = each.parentElement) layers.unshift(rgba(getComputedStyle(each).backgroundColor));
    return layers.reduce((under, top) => over(top, under), [255, 255, 255]);
  }

  function ratio(one, other) {
    const [bright, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (bright + 0.05) / (dark + 0.05);
  }

  function luminance(rgb) {
    const [red, green, blue] = rgb.map((each) => (each / 255 <= 0.04045 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }
}
