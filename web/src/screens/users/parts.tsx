import type { Schemas } from '../../api/client';
import { SelectField } from '../../ui/form';
import { Status } from '../../ui/basic';
import { Tabs } from '../../ui/tabs';

export type User = Schemas['User'];
export type Role = User['role'];

// The roles, from the least to the most, with what each may do.
export const roles: Record<Role, { label: string; may: string }> = {
  viewer: { label: 'Viewer', may: 'Sees everything, and changes nothing.' },
  editor: { label: 'Editor', may: 'Changes gateways, keys, owners and plans.' },
  admin: { label: 'Admin', may: 'Does everything, with users and keys of the level account.' },
};

// labelOf returns what a user is called.
export const labelOf = (u: User): string => u.name ?? u.email ?? u.subject;

// UserState shows the state of a user.
export const UserState = ({ record }: { record: User }) =>
  record.state === 'suspended' ? (
    <Status tone="bad" icon="stop">
      Suspended
    </Status>
  ) : (
    <Status tone="ok">Active</Status>
  );

// RoleField chooses a role, and says what it may do.
export const RoleField = ({ value, onChange, error }: { value: Role; onChange: (role: Role) => void; error?: string }) => (
  <SelectField
    label="Role"
    value={value}
    onChange={(r) => onChange(r as Role)}
    error={error}
    hint={roles[value].may}
    options={(Object.keys(roles) as Role[]).map((r) => ({ value: r, label: roles[r].label }))}
  />
);

const lists = [
  { to: '/users', label: 'Users' },
  { to: '/users/invitations', label: 'Invitations' },
];

// UserNav leads to the lists about users.
export const UserNav = () => <Tabs label="Users" tabs={lists} />;
