package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"

	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
)

// usageCursor is --cursor-file, with which a command reads the final usage records that the commands before it with the same
// file lacked.
type usageCursor struct {
	path string // "" without the flag
}

func (o *usageCursor) add(f *pflag.FlagSet) {
	f.StringVar(&o.path, "cursor-file", "", "`file` with the cursor behind the last records that were read completely")
}

// check checks the filters that are used with the flag.
func (o *usageCursor) check(of *usageFlags) error {
	switch {
	case o.path == "":
		return nil
	case of.filter.State == "open":
		return usagef("--cursor-file cannot be used with --state open: open records change until they are final")
	}
	for _, flag := range [][2]string{{"since", of.span.since}, {"until", of.span.until}} {
		if _, exact := exactTime(flag[1]); flag[1] != "" && !exact {
			return usagef("--%s must be a time or a date with --cursor-file, such as 2026-03-01: the cursor belongs to the filters, and %q is another time in each export", flag[0], flag[1])
		}
	}
	return nil
}

// with calls read with the cursor of the file, "" if there is none yet. read returns the cursor behind what it has read when
// its output is durable; that one is then in the file.
func (o *usageCursor) with(read func(cursor string) (next string, err error)) (err error) {
	if o.path == "" {
		_, err := read("")
		return err
	}
	file, err := openCursorFile(o.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.close()) }()
	next, err := read(file.cursor)
	if err != nil {
		return err
	}
	if err := file.replace(next); err != nil {
		return fmt.Errorf("%w\nThe output is complete, but %s was not replaced: the next time these records come again", err, o.path)
	}
	return nil
}

// open begins an export of the records behind a cursor.
func (o *usageCursor) open(ctx context.Context, api *client.Client, format string, f client.UsageFilter, cursor string) (body io.ReadCloser, next string, err error) {
	body, next, err = api.OpenUsageExport(ctx, format, f, cursor)
	if err != nil {
		return nil, "", o.explain(err)
	}
	if next == "" && o.path != "" {
		return nil, "", errors.Join(errors.New("the response has no header X-Keygate-Cursor: does a proxy before the server remove it?"), body.Close())
	}
	return body, next, nil
}

// explain returns the error for a call with a cursor, in which a cursor that the server refuses is that of the file.
func (o *usageCursor) explain(err error) error {
	var refused *client.Error
	if o.path == "" || !errors.As(err, &refused) || refused.Status != http.StatusUnprocessableEntity || refused.Field != "cursor" {
		return err
	}
	return fmt.Errorf("the cursor in %s belongs to other filters or to another account: give the filters and the account with which it was written, or name another file to begin with the first record (%w)", o.path, err)
}

// usageEntries reads usage records as JSON lines, and closes the body after them.
func usageEntries(body io.ReadCloser) iter.Seq2[client.UsageEntry, error] {
	return func(yield func(client.UsageEntry, error) bool) {
		defer body.Close()
		lines := json.NewDecoder(body)
		for {
			var entry client.UsageEntry
			err := lines.Decode(&entry)
			if errors.Is(err, io.EOF) || !yield(entry, err) || err != nil {
				return
			}
		}
	}
}

// syncRegular makes what was written durable if w is a regular file.
func syncRegular(w io.Writer) error {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	return f.Sync()
}
