// Icons of 16 by 16, drawn with lines of 1.5.
const paths = {
  overview: 'M2 13.5h12M4 11V7m4 4V3m4 8V5.5',
  gateway: 'M3 13.5V7a5 5 0 0 1 10 0v6.5M8 13.5V9.5M8 7.2v.1',
  route: 'M4 3v7a3 3 0 0 0 3 3h5m0 0-2.5-2.5M12 13l-2.5 2.5M4 6h5',
  key: 'M6 10.5a2.75 2.75 0 1 1 0-5.5 2.75 2.75 0 0 1 0 5.5ZM8.7 7.8H14m-2 0v2.4',
  owner: 'M8 7.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM3 13.5c.3-2.5 2.2-4 5-4s4.7 1.5 5 4',
  user: 'M6 7.5a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4ZM1.8 13c.2-2.3 1.8-3.6 4.2-3.6s4 1.3 4.2 3.6M10.6 3.4a2.1 2.1 0 0 1 0 3.9M12 9.7c1.4.5 2.1 1.6 2.2 3.3',
  plan: 'M8 2.5 2 5.5l6 3 6-3zM2.5 8.3 8 11l5.5-2.7M2.5 10.8 8 13.5l5.5-2.7',
  issuer: 'M8 2l4.5 1.6V8c0 2.7-1.8 4.8-4.5 6-2.7-1.2-4.5-3.3-4.5-6V3.6zM5.8 8l1.6 1.6 2.9-3',
  usage: 'M3.2 12.5a6 6 0 1 1 9.6 0M8 9.5l2.8-3.2M5 9.5h.01',
  request: 'M2 5h10m0 0L9.5 2.5M12 5 9.5 7.5M14 11H4m0 0 2.5-2.5M4 11l2.5 2.5',
  webhook: 'M5.5 9.5 8 5m0 0a2 2 0 1 0-2-2m2 2 2.5 4.5M4 13a2 2 0 1 1 1.5-3.4M5.5 12H11m0 0a2 2 0 1 0 2-2',
  audit: 'M4 2h6l3 3v9H4zM6.5 7h4M6.5 9.5h4M6.5 12h2',
  settings: 'M8 10a2 2 0 1 0 0-4 2 2 0 0 0 0 4Zm0-8v2m0 8v2m6-6h-2M4 8H2m10.2-4.2-1.4 1.4M5.2 10.8l-1.4 1.4m8.4 0-1.4-1.4M5.2 5.2 3.8 3.8',
  search: 'M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10Zm3.6-1.4L14 14',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  check: 'm3 8.5 3.2 3.2L13 5',
  cross: 'm4 4 8 8m0-8-8 8',
  warn: 'M8 2 1.5 13.5h13zM8 6.5v3m0 2v.1',
  clock: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12Zm0-9.2V8l2.2 1.6',
  plus: 'M8 3v10M3 8h10',
  down: 'm4 6 4 4 4-4',
  right: 'm6 4 4 4-4 4',
  left: 'm10 4-4 4 4 4',
  external: 'M9 3h4v4m0-4L7.5 8.5M11 9.5V13H3V5h3.5',
  leave: 'M9.5 3H3.5v10h6M7 8h7m0 0-2.5-2.5M14 8l-2.5 2.5',
  help: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM6.2 6.3a1.8 1.8 0 1 1 2.6 1.6c-.5.3-.8.6-.8 1.2m0 2.1v.1',
  more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  pause: 'M5.5 3.5v9m5-9v9',
  play: 'm5 3 8 5-8 5z',
  stop: 'M3.8 3.8l8.4 8.4M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12Z',
  menu: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h11',
  sun: 'M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6Zm0-9.5V3m0 10v1.5M14.5 8H13M3 8H1.5m11.1-4.6-1 1M4.4 11.6l-1 1m9.2 0-1-1M4.4 4.4l-1-1',
  branch:
    'M4.5 5.5v5M4.5 5.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Zm0 8a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Zm7-6a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Zm0 0c0 2-2 2.5-5.5 3.5',
  upload: 'M8 10.5v-8m0 0L5 5.5m3-3 3 3M2.5 10v3.5h11V10',
  refresh: 'M13 8a5 5 0 1 1-1.5-3.5M13 2.5v3h-3',
  filter: 'M2.5 3.5h11L9.5 8.5V13l-3-1.5v-3z',
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name, className = '' }: { name: IconName; className?: string }) {
  return (
    <svg
      aria-hidden="true"
      viewBox="0 0 16 16"
      width="16"
      height="16"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.5"
      strokeLinecap="round"
      strokeLinejoin="round"
      className={`shrink-0 ${className}`}>
      <path d={paths[name]} />
    </svg>
  );
}
