import { Link } from '@tanstack/react-router';
import type { Schemas } from '../../api/client';
import { Notice } from '../../ui/basic';

// MaintenanceBanner says on every page of a gateway that it is under maintenance, and who is served nevertheless.
export function MaintenanceBanner({ gatewayId, maintenance }: { gatewayId: string; maintenance: Schemas['Maintenance'] }) {
  const { message, allow } = maintenance;
  return (
    <Notice>
      This gateway is under maintenance: every request gets a 503
      {allow.length > 0 && `, except from ${allow.join(', ')}`}
      {message !== null && <>, with the message “{message}”</>}. To end it, go to its{' '}
      <Link to="/gateways/$gatewayId/settings" params={{ gatewayId }}>
        settings
      </Link>
      .
    </Notice>
  );
}
