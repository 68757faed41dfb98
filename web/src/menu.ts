import type { IconName } from './ui/icon';

interface MenuItem {
  to: string;
  label: string;
  icon: IconName;
  key: string; // goes there after "g"
  search?: Record<string, string>; // with which the screen opens
  also?: string[]; // paths of other screens that are part of it
}

// menu is the main menu, in its order.
export const menu: MenuItem[] = [
  { to: '/', label: 'Overview', icon: 'overview', key: 'o' },
  { to: '/gateways', label: 'Gateways', icon: 'gateway', key: 'g', also: ['/certificates'] },
  { to: '/routes', label: 'Routes', icon: 'route', key: 'r' },
  { to: '/keys', label: 'Keys', icon: 'key', key: 'k' },
  { to: '/owners', label: 'Owners', icon: 'owner', key: 'n' },
  { to: '/plans', label: 'Plans', icon: 'plan', key: 'p' },
  { to: '/issuers', label: 'Issuers', icon: 'issuer', key: 'i' },
  // The oldest records come first, so that the screen begins with those of the last day.
  { to: '/usage-records', label: 'Usage records', icon: 'usage', key: 'u', search: { since: '24h' } },
  { to: '/requests', label: 'Requests', icon: 'request', key: 'q' },
  { to: '/webhooks', label: 'Webhooks', icon: 'webhook', key: 'w', also: ['/deliveries', '/events'] },
  { to: '/users', label: 'Users', icon: 'user', key: 'e' },
  { to: '/audit', label: 'Audit log', icon: 'audit', key: 'a' },
  { to: '/settings', label: 'Settings', icon: 'settings', key: 's' },
  { to: '/help', label: 'Help', icon: 'help', key: 'h' },
];
