import { useGateway } from './detail';
import { RouteTable } from './routetable';

export default function GatewayRoutes() {
  return <RouteTable gatewayId={useGateway().gatewayId} />;
}
