import { Link } from '@tanstack/react-router';
import { Code, Page, Panel } from '../../ui/basic';
import { Icon } from '../../ui/icon';
import { catalogue, eventTypes, sample } from './catalogue';
import { WebhookNav } from './nav';

// Types has every type of event with a sample of it.
export default function Types() {
  return (
    <Page title="Webhooks">
      <WebhookNav />
      <Panel title="Types of events" flush>
        {eventTypes.map((t) => (
          <details key={t} className="group border-b border-line last:border-0">
            <summary className="flex flex-wrap items-center gap-x-3 gap-y-0.5 px-4 py-2 hover:bg-hover">
              <Icon name="right" className="size-3.5 text-muted group-open:rotate-90" />
              <code className="w-56 font-mono text-sm font-medium">{t}</code>
              <span className="text-muted max-md:w-full max-md:pl-6.5 md:min-w-0 md:flex-1">{catalogue[t].text}</span>
            </summary>
            <div className="flex flex-col gap-2 px-4 pb-3">
              <Code text={sample(t)} label={`Sample of ${t}`} />
              <p>
                <Link to="/events" search={{ type: t }} className="link">
                  Events of this type
                </Link>
              </p>
            </div>
          </details>
        ))}
      </Panel>
    </Page>
  );
}
