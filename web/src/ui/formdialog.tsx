import type { ReactNode } from 'react';
import type { ApiError } from '../api/client';
import type { useEdit } from '../lib/edit';
import { AsCode, type Command } from './ascode';
import { Conflict } from './conflict';
import { Dialog } from './dialog';
import { Form, Submit } from './form';

// A FormState is what a dialog needs of its form: one of useForm, or of useEdit, which has conflict.
interface FormState {
  busy: boolean;
  dirty: boolean;
  rest: () => ApiError | null;
  conflict?: ReturnType<typeof useEdit>['conflict'];
}

// FormDialog is a dialog with a form, its buttons, and the same as code. A form of useEdit shows its conflict, and cannot be
// submitted during one, or while it is unchanged. The dialog stays open while the form is busy.
export function FormDialog({
  title,
  wide,
  form,
  submit,
  command,
  label = 'Save',
  why,
  problem,
  disabled = false,
  unchanged = form.conflict !== undefined && !form.dirty,
  onClose,
  children,
}: {
  title: ReactNode;
  wide?: boolean;
  form: FormState;
  submit: () => unknown;
  command: Command;
  label?: string; // of the button that submits
  why?: string | null; // why the form cannot be submitted
  problem?: string | null; // what is wrong with what was typed, so that there is no code either
  disabled?: boolean;
  unchanged?: boolean;
  onClose: () => void;
  children: ReactNode;
}) {
  return (
    <Dialog title={title} wide={wide} onClose={onClose} mayClose={() => !form.busy}>
      <Form onSubmit={submit}>
        {form.conflict && <Conflict {...form.conflict} />}
        {children}
        <Submit
          beside={<AsCode command={command} why={problem ?? (unchanged ? 'Nothing has been changed yet.' : null)} />}
          label={label}
          busy={form.busy}
          error={form.rest}
          unchanged={unchanged}
          why={why ?? problem}
          disabled={disabled || Boolean(form.conflict)}
          onCancel={onClose}
        />
      </Form>
    </Dialog>
  );
}
