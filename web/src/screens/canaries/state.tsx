import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { usePresentCanary } from '../../api/canaries';
import { type Canary, type CanaryState, explanationWords, weightWords } from '../../lib/canary';
import { Notice, Status, type Tone } from '../../ui/basic';
import { Icon, type IconName } from '../../ui/icon';

const states: Record<CanaryState, [Tone, IconName, string]> = {
  running: ['info', 'play', 'Running'],
  paused: ['warn', 'pause', 'Paused'],
  held: ['warn', 'clock', 'Held'],
  promoted: ['ok', 'check', 'Promoted'],
  aborted: ['bad', 'cross', 'Aborted'],
};

// StateOf shows the state of a canary.
export function StateOf({ canary }: { canary: Pick<Canary, 'state'> }) {
  const [tone, icon, word] = states[canary.state];
  return (
    <Status tone={tone} icon={icon}>
      {word}
    </Status>
  );
}

// explained has the look of what a state explains.
export const explained: Record<CanaryState, string> = {
  running: 'border-accent bg-accent-soft',
  paused: 'border-warn bg-warn-soft',
  held: 'border-warn bg-warn-soft',
  promoted: 'border-ok bg-ok-soft',
  aborted: 'border-bad bg-bad-soft',
};
const colors: Record<CanaryState, string> = {
  running: 'text-accent',
  paused: 'text-warn',
  held: 'text-warn',
  promoted: 'text-ok',
  aborted: 'text-bad',
};

// StateIcon is the icon of a state, in its colour.
export const StateIcon = ({ state, className = '' }: { state: CanaryState; className?: string }) => (
  <Icon name={states[state][1]} className={`${colors[state]} ${className}`} />
);

// Explanation says in words what was last decided about a canary.
export function Explanation({ canary }: { canary: Canary }) {
  const { state, explanation } = canary;
  if (!explanation) return null;
  return (
    <p className={`flex gap-2 rounded-md border px-3 py-2 ${explained[state]}`}>
      <StateIcon state={state} className="mt-0.5" />
      <span className="min-w-0 break-words">{explanationWords(canary)}</span>
    </p>
  );
}

// CanaryLink leads to a canary of a gateway, and says how many callers it has.
export function CanaryLink({ gatewayId, canary }: { gatewayId: string; canary: Canary }) {
  return (
    <Link
      to="/gateways/$gatewayId/canaries/$canaryId"
      params={{ gatewayId, canaryId: canary.canary_id }}
      className="link min-w-0 break-words">
      A canary sends {weightWords(canary)} of the callers to {canary.upstream}
    </Link>
  );
}

// CanaryNotice warns of the canary of a gateway that has not ended, if it concerns what is shown.
export function CanaryNotice({
  gatewayId,
  concerns,
  children,
}: {
  gatewayId: string;
  concerns: (c: Canary) => boolean;
  children: ReactNode; // what that means
}) {
  const { canary } = usePresentCanary(gatewayId);
  if (!canary || !concerns(canary)) return null;
  return (
    <Notice>
      <CanaryLink gatewayId={gatewayId} canary={canary} />: {children}
    </Notice>
  );
}
