import type { useForm } from '../../lib/form';
import { isSwitch, matches, upstreamSettings } from '../../lib/settings';
import { balances, isShown, maxTargets, newTarget, type TargetDraft, type UpstreamValues } from '../../lib/upstream';
import { Button, IconButton, Panel } from '../../ui/basic';
import { CheckField, TextField } from '../../ui/form';
import { SettingField } from '../../ui/setting';
import { BackupField, ResolveField, WeightField } from './targets';

// A FormOf has what the fields need of a form.
type FormOf = Pick<ReturnType<typeof useForm<UpstreamValues>>, 'values' | 'set' | 'errorAt'>;

// UpstreamFields edits an upstream: its targets, which are sent as a whole, and its settings.
export function UpstreamFields({ form }: { form: FormOf }) {
  const { values: v, set } = form;
  const { targets } = v;
  const ofAll = form.errorAt((f) => f === 'targets');
  return (
    <>
      <Panel title="Targets">
        <div className="flex flex-col gap-4">
          <p className="text-muted">Where the requests go. All targets have one scheme: http, https or h2c.</p>
          {targets.map((target, n) => (
            <TargetEditor
              key={n}
              number={n + 1}
              target={target}
              onChange={(part) =>
                set(
                  'targets',
                  targets.map((t, i) => (i === n ? { ...t, ...part } : t)),
                )
              }
              onRemove={
                targets.length > 1
                  ? () =>
                      set(
                        'targets',
                        targets.filter((_, i) => i !== n),
                      )
                  : undefined
              }
              error={(part) => form.errorAt((f) => f === `targets[${n}].${part}` || (part === 'url' && f === `targets[${n}]`))}
            />
          ))}
          {ofAll && (
            <p role="alert" className="text-sm text-bad">
              Targets {ofAll}
            </p>
          )}
          {targets.length < maxTargets && (
            <div>
              <Button size="sm" icon="plus" onClick={() => set('targets', [...targets, newTarget])}>
                Add a target
              </Button>
            </div>
          )}
        </div>
      </Panel>
      {upstreamSettings.sections.map((s) => (
        <Panel key={s.title} title={s.title}>
          {s.text && <p className="mb-3 text-muted">{s.text}</p>}
          <div className="grid gap-4 sm:grid-cols-2 lg:grid-cols-3">
            {s.fields
              .filter((f) => isShown(f.path, v))
              .filter((f) => isSwitch(f) || v[f.setting.name] !== 'false')
              .map((f) => (
                <div key={f.path} className={isSwitch(f) ? 'col-span-full' : 'contents'}>
                  <SettingField
                    field={f}
                    value={v[f.path] as string}
                    error={form.errorAt((e) => matches(f, e))}
                    onChange={(t) => set(f.path, t)}
                    words={f.path === 'balance' ? balances : undefined}
                  />
                </div>
              ))}
          </div>
        </Panel>
      ))}
    </>
  );
}

// TargetEditor edits a target. Without onRemove it cannot be removed.
function TargetEditor({
  number,
  target,
  onChange,
  onRemove,
  error,
}: {
  number: number;
  target: TargetDraft;
  onChange: (part: Partial<TargetDraft>) => void;
  onRemove?: () => void;
  error: (part: string) => string | undefined;
}) {
  return (
    <fieldset className="rounded-md border border-line p-3">
      <legend className="sr-only">Target {number}</legend>
      <div className="flex items-start gap-2">
        <div className="grid min-w-0 flex-1 gap-3 sm:grid-cols-[minmax(0,1fr)_7rem]">
          <TextField
            label="URL"
            required
            mono
            placeholder="http://10.0.0.2:3000"
            value={target.url}
            error={error('url')}
            onChange={(url) => onChange({ url })}
          />
          <WeightField value={target.weight} error={error('weight')} onChange={(weight) => onChange({ weight })} />
          <div className="col-span-full">
            <ResolveField value={target.resolve} error={error('resolve')} onChange={(resolve) => onChange({ resolve })} />
          </div>
          <div className="col-span-full flex flex-wrap gap-x-6 gap-y-2">
            <BackupField value={target.backup} onChange={(backup) => onChange({ backup })} />
            <CheckField label="Draining" hint="It gets no requests." checked={target.drain} onChange={(drain) => onChange({ drain })} />
          </div>
        </div>
        {onRemove && <IconButton icon="cross" label={`Remove target ${number}`} onClick={onRemove} />}
      </div>
    </fieldset>
  );
}
