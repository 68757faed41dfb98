import { parse, stringify } from '../../api/json';

// pretty returns JSON in lines, with its integers exact, and any other text as it is.
export function pretty(text: string): string {
  try {
    return stringify(parse(text), 2);
  } catch {
    return text;
  }
}
