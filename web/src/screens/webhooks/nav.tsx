import { Tabs } from '../../ui/tabs';

const lists = [
  { to: '/webhooks', label: 'Endpoints' },
  { to: '/deliveries', label: 'Deliveries' },
  { to: '/events', label: 'Events' },
  { to: '/events/catalogue', label: 'Catalogue' },
];

// WebhookNav leads to the lists about webhooks.
export const WebhookNav = () => <Tabs label="Webhooks" tabs={lists} />;
