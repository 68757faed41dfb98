// A key in full: kg_ or kga_, six characters that are its prefix, and the secret rest.
const key = /\b(kga?_[0-9A-Za-z]{6})[0-9A-Za-z]{20,}/g;

// withoutSecret cuts the keys in text down to their prefixes. What is searched for gets into the address and the
// history of the browser, where no secret belongs. The prefix is enough to find the key.
export const withoutSecret = (text: string): string => text.replace(key, '$1');
