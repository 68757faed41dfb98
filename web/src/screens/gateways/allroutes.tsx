import { Link } from '@tanstack/react-router';
import { useGateways } from '../../api/gateways';
import { useUrl } from '../../lib/url';
import { buttonClass, Empty, Page, Panel } from '../../ui/basic';
import { GatewaySelect } from '../../ui/gatewayselect';
import { RouteTable } from './routetable';

// AllRoutes lists the routes of a gateway that is chosen here, at first the default one.
export default function AllRoutes() {
  const [url, change] = useUrl<'gateway_id' | 'q' | 'method'>();
  const { gateways, loaded } = useGateways();
  const chosen = url.gateway_id ?? (gateways.find((g) => g.default) ?? gateways[0])?.gateway_id;
  return (
    <Page
      title="Routes"
      actions={
        gateways.length > 1 && (
          <GatewaySelect aria-label="Gateway" value={chosen ?? ''} className="w-56!" onChange={(id) => change({ gateway_id: id })} />
        )
      }>
      {chosen ? (
        <RouteTable key={chosen} gatewayId={chosen} />
      ) : (
        loaded && (
          <Panel flush>
            <Empty
              icon="gateway"
              title="No gateways yet"
              action={
                <Link to="/gateways/new" className={buttonClass('primary')}>
                  Create a gateway
                </Link>
              }>
              Routes belong to a gateway.
            </Empty>
          </Panel>
        )
      )}
    </Page>
  );
}
