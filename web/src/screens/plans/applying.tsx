import { Link } from '@tanstack/react-router';
import { useGateways } from '../../api/gateways';
import { usePlanRecords } from '../../api/plans';
import { useRefusal } from '../../api/session';
import { applying, type Placed } from '../../lib/plan';
import { Panel, Skeleton } from '../../ui/basic';
import { LimitList } from './limitlist';

interface Of {
  keyPlan?: string | null;
  ownerPlan: string | null | undefined; // undefined while it is not known
  gatewayId?: string | null; // the only gateway that the key works on; null for all
}

// useApplying returns the limits of plans that apply to the keys of an owner, or to one key; undefined while they are
// read. If they cannot be, refused says why. partly reports that the default plans of some gateways are left out.
export function useApplying({ keyPlan = null, ownerPlan, gatewayId = null }: Of) {
  const { gateways, loaded, more } = useGateways();
  const noGateways = useRefusal('read', 'gateways');
  const refused = useRefusal('read', 'plans');
  const there = gateways.filter((g) => gatewayId === null || g.gateway_id === gatewayId);
  const { plans, pending } = usePlanRecords([keyPlan, ownerPlan, ...there.map((g) => g.default_plan_id)]);
  const planOf = (id: string | null | undefined) => plans.get(id ?? '');
  if (refused) return { refused, partly: false };
  if (pending || ownerPlan === undefined || !(loaded || noGateways)) return { refused: null, partly: false };
  const lines = applying({
    keyPlan: planOf(keyPlan),
    ownerPlan: planOf(ownerPlan),
    gateways: there.map((g) => ({ gateway_id: g.gateway_id, plan: planOf(g.default_plan_id) })),
  });
  return {
    refused: null,
    lines: lines.filter((l) => gatewayId === null || l.gatewayId === null || l.gatewayId === gatewayId),
    partly: noGateways !== null || (more && gatewayId === null),
  };
}

// Applying is a panel with the limits of plans that apply, and where they come from.
export function Applying({ of: { refused, lines, partly } }: { of: ReturnType<typeof useApplying> }) {
  return (
    <Panel title="Limits of plans">
      {refused ? (
        <p className="text-muted">{refused}</p>
      ) : !lines ? (
        <Skeleton className="h-24 w-full" />
      ) : lines.length === 0 ? (
        <p className="text-muted">No limit of a plan applies.</p>
      ) : (
        <LimitList label="Limits of plans" lines={lines.map((l) => ({ ...l, from: <Origin of={l} /> }))} />
      )}
      {partly && <p className="mt-3 text-sm text-muted">Default plans of gateways that are not among the newest 100 are not shown.</p>}
    </Panel>
  );
}

const origins: Record<Placed['from'], string> = { key: 'of the key', owner: 'of the owner', gateway: 'default of the gateway' };

const Origin = ({ of: { plan, from } }: { of: Placed }) => (
  <>
    plan{' '}
    <Link to="/plans/$planId" params={{ planId: plan.plan_id }} className="link">
      {plan.name}
    </Link>
    , {origins[from]}
  </>
);
