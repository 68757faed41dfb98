import { Link } from '@tanstack/react-router';
import type { Schemas } from '../../api/client';
import type { Calendar } from '../../lib/calendar';
import { Status } from '../../ui/basic';
import { CalendarFields } from '../../ui/calendar';

export type Owner = Schemas['Owner'];

// OwnerState shows the state of an owner.
export const OwnerState = ({ record }: { record: Owner }) =>
  record.state === 'suspended' ? (
    <Status tone="bad" icon="stop">
      Suspended
    </Status>
  ) : (
    <Status tone="ok">Active</Status>
  );

// OwnerLink is the link of a row of a list of owners: the whole external identifier, since many differ at the end
// alone, with the name behind it.
export const OwnerLink = ({ record }: { record: Owner }) => (
  <Link to="/owners/$ownerId" params={{ ownerId: record.owner_id }} className="row-link link block font-medium wrap-anywhere">
    <bdi>{record.external_id}</bdi>
    {record.name && (
      <>
        {' '}
        <bdi className="ml-1 font-normal text-muted" dir="auto">
          {record.name}
        </bdi>
      </>
    )}
  </Link>
);

// PlanLink leads to the plan of a record.
export const PlanLink = ({ record, none = '–' }: { record: { plan_id: string | null; plan: string | null }; none?: string }) =>
  record.plan_id ? (
    <Link to="/plans/$planId" params={{ planId: record.plan_id }} className="link">
      {record.plan ?? record.plan_id}
    </Link>
  ) : (
    <span className="text-muted">{none}</span>
  );

// OwnerCalendar edits the calendar of an owner, in a form.
export const OwnerCalendar = ({
  form,
}: {
  form: { values: Calendar; set: (name: keyof Calendar, text: string) => void; fieldError: (name: string) => string | undefined };
}) => (
  <CalendarFields
    value={form.values}
    none={{ time_zone: 'That of the plan', anchor_day: 'That of the plan' }}
    set={form.set}
    error={form.fieldError}
  />
);
