export const inFlightHint = 'At once, streams and upgrades included. The keys of a rotation share it.';
