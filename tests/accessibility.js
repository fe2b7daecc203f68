/* The body of a function that lists what a reader with a keyboard, a screen reader or weak eyes
   would miss on a page: images without alternatives, controls without names or out of reach,
   table headers without scope, ids that are there twice, text with too little contrast. */
const found = [];
const LEAST = 4.5, LEAST_LARGE = 3, LARGE = 24, LARGE_BOLD = 18.66;

const visible = (element) => element.checkVisibility({visibilityProperty: true, opacityProperty: true});
const what = (element) => element.outerHTML.slice(0, 120);

function name(element) {
  const labelled = (element.getAttribute('aria-labelledby') || '').split(' ')
    .map(id => document.getElementById(id)?.textContent || '').join(' ').trim();
  const alts = [...element.querySelectorAll('img')].map(img => img.alt).join(' ').trim();
  const label = element.labels && [...element.labels].map(l => l.textContent).join(' ').trim();
  return labelled || (element.getAttribute('aria-label') || '').trim() || label ||
    (element.textContent || '').trim() || alts || (element.title || '').trim();
}

for (const image of document.querySelectorAll('img')) {
  if (!image.hasAttribute('alt')) found.push(`img without alt: ${what(image)}`);
}
const CONTROLS = 'a[href], button, input, select, textarea, summary, [role=button], [role=img], [role=region]';
for (const control of document.querySelectorAll(CONTROLS)) {
  if (!visible(control)) continue;
  const tag = control.tagName.toLowerCase();
  if (!name(control)) found.push(`${tag} without a name: ${what(control)}`);
  if (control.getAttribute('role') === 'button' && control.tabIndex < 0) {
    found.push(`${tag} cannot be focused: ${what(control)}`);
  }
}
for (const head of document.querySelectorAll('th')) {
  if (visible(head) && head.textContent.trim() && !head.scope) found.push(`th without scope: ${what(head)}`);
}
/* asv numbers the rows of its regressions by benchmark and commits, the same on two machines. */
const ids = [...document.querySelectorAll('[id]:not([id^=asv-r-])')].map(element => element.id);
for (const id of new Set(ids.filter((id, index) => ids.indexOf(id) !== index))) found.push(`id twice: ${id}`);
for (const [selector, count] of [['main', 1], ['nav', 1], ['h1, [role=heading][aria-level="1"]', 1]]) {
  if (document.querySelectorAll(selector).length < count) found.push(`no ${selector}`);
}
if (!document.title.trim()) found.push('no title');

/* Colours as the browser computes them: rgb(r, g, b) or rgba(r, g, b, a). */
const colour = (text) => {
  const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
  return {r, g, b, a};
};
const over = (front, back) => ({
  r: front.r * front.a + back.r * (1 - front.a),
  g: front.g * front.a + back.g * (1 - front.a),
  b: front.b * front.a + back.b * (1 - front.a), a: 1,
});
const luminance = ({r, g, b}) => [r, g, b].map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);

const filtered = getComputedStyle(document.documentElement).filter !== 'none';
const dark = matchMedia('(prefers-color-scheme: dark)').matches && !filtered;

function ground(element) {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    const layer = colour(getComputedStyle(at).backgroundColor);
    layers.push(layer);
    if (layer.a === 1) break;
  }
  const canvas = dark ? {r: 18, g: 18, b: 18, a: 1} : {r: 255, g: 255, b: 255, a: 1};
  return layers.reverse().reduce((back, front) => over(front, back), canvas);
}

/* Where a filter turns the page (asv's in the dark), what is seen are the turned colours. */
function turned({r, g, b}) {
  const amount = 0.91;
  [r, g, b] = [r, g, b].map(v => 255 * amount + v * (1 - 2 * amount));
  return {
    r: -0.574 * r + 1.43 * g + 0.144 * b, g: 0.426 * r + 0.43 * g + 0.144 * b,
    b: 0.426 * r + 1.43 * g - 0.856 * b,
  };
}
const clamp = ({r, g, b}) => {
  const [x, y, z] = [r, g, b].map(v => Math.max(0, Math.min(255, v)));
  return {r: x, g: y, b: z};
};

const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const said = new Set();
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || !visible(element)) continue;
  if (element.closest('script, style, noscript, .hidden, .legend, option')) continue;
  const style = getComputedStyle(element), back = ground(element);
  let pair = [over(colour(style.color), back), back];
  if (filtered) pair = pair.map(turned).map(clamp);
  const [high, low] = pair.map(luminance).sort((a, b) => b - a);
  const ratio = (high + 0.05) / (low + 0.05), size = parseFloat(style.fontSize);
  const large = size >= LARGE || (size >= LARGE_BOLD && Number(style.fontWeight) >= 700);
  if (ratio < (large ? LEAST_LARGE : LEAST)) {
    const message = `contrast ${ratio.toFixed(2)}: ${element.tagName.toLowerCase()}.${element.className} ` +
      `"${element.textContent.trim().slice(0, 30)}"`;
    const kind = `${element.tagName}.${element.className}`;
    if (!said.has(kind)) found.push(message);
    said.add(kind);
  }
}
return found;
