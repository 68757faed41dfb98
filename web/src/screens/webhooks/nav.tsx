import { Link } from '@tanstack/react-router';

const lists = [
  { to: '/webhooks', label: 'Endpoints' },
  { to: '/deliveries', label: 'Deliveries' },
  { to: '/events', label: 'Events' },
  { to: '/events/catalogue', label: 'Catalogue' },
] as const;

// WebhookNav leads to the lists about webhooks.
export function WebhookNav() {
  return (
    <nav aria-label="Webhooks" className="-mt-2 flex gap-4 border-b border-line">
      {lists.map((l) => (
        <Link
          key={l.to}
          to={l.to}
          activeOptions={{ includeSearch: false, exact: true }}
          className="-mb-px border-b-2 border-transparent py-2 text-muted hover:text-text aria-[current]:border-accent aria-[current]:font-medium aria-[current]:text-text">
          {l.label}
        </Link>
      ))}
    </nav>
  );
}
