import { useState } from 'react';
import { Button, Code } from '../../ui/basic';
import { Field } from '../../ui/form';
import { catalogue, eventTypes, sample } from './catalogue';

// EventsField chooses the types of the events that an endpoint receives, with a sample of each as a help.
export function EventsField({ value, onChange, error }: { value: string[]; onChange: (types: string[]) => void; error?: string }) {
  const [shown, setShown] = useState('');
  const toggle = (type: string, on: boolean) => onChange(eventTypes.filter((t) => (t === type ? on : value.includes(t))));
  return (
    <Field label="Events" error={error}>
      {() => (
        <div role="group" aria-label="Events" className="rounded-md border border-line">
          {eventTypes.map((type) => {
            const open = shown === type;
            return (
              <div key={type} className="border-b border-line px-3 py-2 last:border-0">
                <div className="flex items-start gap-2">
                  <input
                    id={`event-${type}`}
                    type="checkbox"
                    checked={value.includes(type)}
                    onChange={(e) => toggle(type, e.target.checked)}
                    aria-describedby={`event-${type}-text`}
                    className="mt-0.5 size-4 shrink-0 accent-(--accent)"
                  />
                  <div className="min-w-0 flex-1">
                    <label htmlFor={`event-${type}`} className="font-mono text-sm font-medium">
                      {type}
                    </label>
                    <p id={`event-${type}-text`} className="text-sm text-muted">
                      {catalogue[type].text}
                    </p>
                  </div>
                  <Button
                    size="sm"
                    kind="quiet"
                    aria-expanded={open}
                    aria-label={`Sample of ${type}`}
                    onClick={() => setShown(open ? '' : type)}>
                    Sample
                  </Button>
                </div>
                {open && (
                  <div className="mt-2">
                    <Code text={sample(type)} label={`Sample of ${type}`} />
                  </div>
                )}
              </div>
            );
          })}
          <div className="flex gap-2 border-t border-line px-3 py-2">
            <Button size="sm" onClick={() => onChange([...eventTypes])}>
              All
            </Button>
            <Button size="sm" onClick={() => onChange([])}>
              None
            </Button>
          </div>
        </div>
      )}
    </Field>
  );
}
