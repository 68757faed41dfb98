import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, type Schemas } from '../../api/client';
import { changed, useList } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useUrl } from '../../lib/url';
import { AsCode } from '../../ui/ascode';
import { Button, Empty, Page, Panel, Status, Time } from '../../ui/basic';
import { ConfirmDialog } from '../../ui/dialog';
import { FilterBar } from '../../ui/filter';
import { type Column, PagedTable } from '../../ui/table';
import { toast } from '../../ui/toast';

type Certificate = Schemas['Certificate'];

// StateOf shows the state of a certificate. One that is served may have a renewal that fails.
function StateOf({ certificate: c }: { certificate: Certificate }) {
  switch (c.state) {
    case 'valid':
      return c.last_error ? <Status tone="warn">Renewal fails</Status> : <Status tone="ok">Valid</Status>;
    case 'pending':
      return (
        <Status tone="plain" icon="clock">
          Pending
        </Status>
      );
    case 'expired':
      return <Status tone="bad">Expired</Status>;
    default:
      return <Status tone="bad">Failed</Status>;
  }
}

// Renew asks whether to begin the next attempt now.
function Renew({ certificate: c, onClose }: { certificate: Certificate; onClose: () => void }) {
  const run = async () => {
    await api.post('/v1/certificates/{certificate_id}/renew', { path: { certificate_id: c.certificate_id } });
    toast('The next attempt begins within some seconds');
    await changed('/v1/certificates');
  };
  return (
    <ConfirmDialog title="Renew the certificate" action="Renew" harmless onClose={onClose} run={run}>
      <p>
        The next attempt to get a certificate for <b className="break-all">{c.hostname}</b> begins now. The present one is served until
        there is a new one.
      </p>
      <div>
        <AsCode
          command={{ cli: `keygate certificates renew ${c.hostname}`, method: 'POST', path: `/v1/certificates/${c.certificate_id}/renew` }}
        />
      </div>
    </ConfirmDialog>
  );
}

// Certificates lists the certificates by ACME of the account.
export default function Certificates() {
  const [{ q, cursor }, change] = useUrl<'q' | 'cursor'>();
  const refused = useRefusal('write', 'certificates');
  const [renewed, setRenewed] = useState<Certificate | null>(null);
  const query = useList('/v1/certificates', { query: { q, cursor, limit: 50 } }, { refetchInterval: 10_000 });
  const columns: Column<Certificate>[] = [
    {
      title: 'Hostname',
      className: 'w-full max-w-0',
      cell: (c) => (
        <>
          <Link
            to="/gateways/$gatewayId/settings"
            params={{ gatewayId: c.gateway_id }}
            className="link block truncate font-medium"
            title={c.hostname}>
            {c.hostname}
          </Link>
          {c.last_error && <span className="block text-sm text-muted wrap-anywhere">{c.last_error}</span>}
        </>
      ),
    },
    { title: 'State', cell: (c) => <StateOf certificate={c} /> },
    { title: 'Ends', className: 'hidden @lg:table-cell', cell: (c) => <Time at={c.not_after} /> },
    { title: 'Next attempt', className: 'hidden @2xl:table-cell', cell: (c) => <Time at={c.next_attempt_at} /> },
    {
      title: <span className="sr-only">Action</span>,
      cell: (c) => (
        <Button icon="refresh" why={refused} onClick={() => setRenewed(c)}>
          Renew
        </Button>
      ),
    },
  ];
  return (
    <Page title="Certificates">
      <Panel flush title={<FilterBar placeholder="Search certificates by hostname" />}>
        <PagedTable
          label="Certificates"
          query={query}
          columns={columns}
          rowKey={(c) => c.certificate_id}
          empty={
            q ? (
              <Empty
                icon="search"
                title="No certificate matches"
                action={<Button onClick={() => change({ q: undefined })}>Clear the search</Button>}>
                The search looks at hostnames.
              </Empty>
            ) : (
              <Empty
                icon="check"
                title="No certificates"
                action={
                  <Link to="/help/$page" params={{ page: 'certificates' }} className="link">
                    How certificates work
                  </Link>
                }>
                Keygate gets a certificate for the hostname of each gateway whose settings say so, and renews it.
              </Empty>
            )
          }
        />
      </Panel>
      {renewed && <Renew certificate={renewed} onClose={() => setRenewed(null)} />}
    </Page>
  );
}
