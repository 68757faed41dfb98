import { Page } from '../../ui/basic';
import { DeliveryLog } from './log';
import { WebhookNav } from './nav';

export default function Deliveries() {
  return (
    <Page title="Webhooks">
      <WebhookNav />
      <DeliveryLog />
    </Page>
  );
}
