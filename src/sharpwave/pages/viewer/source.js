// Where the page gets its numbers: from inside itself, or from the server that sent it.

const inFile = {
  has: (id) => String(id) in data.episodes,
  reason: (id) => data.reasons[id],
  carried: data.order,
  episode: async (id) => data.episodes[id],
  image: (_, picture, step) =>
    `data:image/png;base64,${picture.frames[Math.min(Math.floor(step / picture.every), picture.frames.length - 1)]}`,
};

const onServer = {
  has: () => true,
  reason: () => undefined,
  carried: [],
  episode: (id) => ask(`/episode?id=${id}`),
  image: (id, picture, step) => `/frame?id=${id}&field=${encodeURIComponent(picture.field)}&step=${step}`,
  news: (since) => ask(`/state?since=${since}`),
};

const source = data.live ? onServer : inFile;

// Images that were shown or soon will be, decoded; the oldest go first.
const images = new Map();

function image(address) {
  if (!images.has(address)) {
    const made = new Image();
    made.src = address;
    images.set(address, made.decode().then(() => made, () => null));
    if (images.size > 600) images.delete(images.keys().next().value);
  }
  return images.get(address);
}
