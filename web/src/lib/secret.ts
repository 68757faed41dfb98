// A key in full: kg_, kga_ or kgs_, six characters that are its prefix, and the secret rest.
const key = /\b(kg[as]?_[0-9A-Za-z]{6})[0-9A-Za-z]{20,}/g;

// A token: three parts in base64url, of which the first begins an object of JSON.
const token = /\be[wy][\w-]{14,}\.[\w-]{14,}\.[\w-]*/g;

// withoutSecret cuts the keys in text down to their prefixes, and takes tokens out of it. What is searched for gets into the address
// and the history of the browser, where no secret belongs. The prefix is enough to find the key.
export const withoutSecret = (text: string): string => text.replace(key, '$1').replace(token, '');
