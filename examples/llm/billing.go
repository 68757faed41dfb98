package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// centsPerThousand is the price of 1,000 tokens.
const centsPerThousand = 3

// record is a usage record: what a key has used in an hour.
type record struct {
	UsageID string `json:"usage_id"` // always the same for the same record
	Owner   string `json:"owner"`
	Meter   string `json:"meter"`
	Units   int64  `json:"units"`
}

// billing writes what teams have used to a ledger, each usage record once. The cursor, the batch and the ledger are files of
// its directory, so that it goes on after a crash where it was. docs/billing.md has the same for Stripe, OpenMeter and Lago.
type billing struct {
	dir    string
	export func(ctx context.Context, cursorFile, file string) error // writes the records that the exports before lacked
}

// round brings the ledger up to date.
func (b *billing) round(ctx context.Context) error {
	batch := filepath.Join(b.dir, "batch.jsonl")
	for again := true; again; { // first what an earlier round has left
		_, err := os.Stat(batch)
		if again = err == nil; !again {
			if err := b.export(ctx, filepath.Join(b.dir, "cursor"), batch); err != nil {
				return err
			}
		}
		records, err := readRecords(batch)
		if err != nil {
			return err
		}
		if err := b.enter(records); err != nil {
			return err
		}
		if err := os.Remove(batch); err != nil {
			return err
		}
	}
	return nil
}

func (b *billing) ledger() string { return filepath.Join(b.dir, "ledger.jsonl") }

// enter adds the records that the ledger does not have: a record may come twice, and counts once.
func (b *billing) enter(records []record) error {
	known, err := readRecords(b.ledger())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entered := map[string]bool{}
	var lines bytes.Buffer // all of the ledger, so that a crash leaves no half of a line
	for _, r := range append(known, records...) {
		if entered[r.UsageID] {
			continue
		}
		entered[r.UsageID] = true
		if err := json.NewEncoder(&lines).Encode(r); err != nil {
			return err
		}
	}
	return replace(b.ledger(), lines.Bytes())
}

// replace replaces a file by one that is on disk.
func replace(name string, content []byte) error {
	f, err := os.Create(name + ".new")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// invoices returns a line for each owner, in the order in which they came.
func (b *billing) invoices() ([]string, error) {
	records, err := readRecords(b.ledger())
	if err != nil {
		return nil, err
	}
	units := map[string]int64{}
	var owners, lines []string
	for _, r := range records {
		if r.Meter != "tokens" {
			continue
		}
		if _, known := units[r.Owner]; !known {
			owners = append(owners, r.Owner)
		}
		units[r.Owner] += r.Units
	}
	for _, owner := range owners {
		cents := (units[owner]*centsPerThousand + 999) / 1000
		lines = append(lines, fmt.Sprintf("%s: %d tokens, $%d.%02d", owner, units[owner], cents/100, cents%100))
	}
	return lines, nil
}

func readRecords(name string) ([]record, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	var list []record
	for d := json.NewDecoder(f); ; {
		var r record
		switch err := d.Decode(&r); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, r)
	}
}
