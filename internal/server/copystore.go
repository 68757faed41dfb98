package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/postgres"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// StoreCopy is what CopyStore did.
type StoreCopy struct {
	From   string `json:"from"` // the data directory
	To     string `json:"to"`   // the URL of the database, without its password
	Tables int64  `json:"tables"`
	Rows   int64  `json:"rows"`
	Chains int64  `json:"audit_chains"` // whose heads agree
	// Finished is set if an earlier call had copied everything, but was ended before it could report it.
	Finished bool `json:"finished_earlier_copy"`
}

// moveFile is the name of the file that says where the store of a data directory was copied to.
const moveFile = "moved.json"

// move is the content of moveFile.
type move struct {
	// Installation names the copy.
	Installation string `json:"installation"`
	To           string `json:"to"` // the URL, without its password
	// Complete says that the copy is complete. If it is not set, the copy may be complete nevertheless;
	// CopyStore finds out.
	Complete bool      `json:"complete"`
	At       time.Time `json:"at"`
}

// readMove returns the move of a data directory, or nil.
func readMove(dir string) (*move, error) {
	b, err := os.ReadFile(filepath.Join(dir, moveFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var m move
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("read whether the store was moved: %w", err)
	}
	return &m, nil
}

func (m *move) write(dir string) error {
	b, err := json.Marshal(m)
	if err == nil {
		err = writeFileAtomically(filepath.Join(dir, moveFile), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write that the store is moved: %w", err)
	}
	return nil
}

// refuseMoved returns an error if the store of a data directory was copied to a database, or may have been: changes
// that are made here would be missing there.
func refuseMoved(dir string) error {
	m, err := readMove(dir)
	switch {
	case err != nil || m == nil:
		return err
	case m.Complete:
		return fmt.Errorf("the store in %s was moved to %s at %s: set --database-url to that database; or, to go back to the state before the move, stop the nodes that use the database and remove %s",
			dir, m.To, m.At.UTC().Format(time.RFC3339), filepath.Join(dir, moveFile))
	default:
		return fmt.Errorf("a copy of the store in %s to %s was interrupted when it may have been complete: repeat keygate store copy, which finishes it; or, to give the copy up, drop that database and remove %s",
			dir, m.To, filepath.Join(dir, moveFile))
	}
}

// CopyStore copies the SQLite store in the data directory of settings to their database, which must be empty, and
// marks the directory as moved. version is the version of this binary. It needs the directory's lock and the secret key. The copy is one transaction, so
// a call that is ended before its end has changed nothing and can be repeated. progress is called for each table, again
// and again; done and of are numbers of rows.
func CopyStore(ctx context.Context, settings *config.Config, version string, log *slog.Logger, progress func(table string, done, of int64)) (_ *StoreCopy, err error) {
	dir := settings.DataDir
	if found, err := hasDatabase(settings); err != nil || !found {
		return nil, errors.Join(fmt.Errorf("no store in %s: --from must be the data directory of a server", dir), err)
	}
	lock, err := takeLock(ctx, settings.LockFile())
	if err != nil {
		return nil, err
	}
	defer lock.release()
	m, err := readMove(dir)
	if err != nil {
		return nil, err
	}
	to := settings.DatabaseText()
	inDoubt := m != nil // by an earlier call
	if m == nil {
		m = &move{Installation: rand.Text(), To: to}
	}
	if m.Complete || m.To != to {
		return nil, refuseMoved(dir)
	}
	box, err := openBox(settings, true)
	if err != nil {
		return nil, err
	}
	sealed, err := box.Seal([]byte(canary))
	if err != nil {
		return nil, err
	}
	from, err := sqlite.Open(ctx, sqlite.Config{Path: settings.DatabaseFile(), Log: log, BackupBeforeMigrate: settings.BackupBeforeMigrate, Version: version})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	interrupted := inDoubt
	var filled postgres.Filled
	err = from.Dump(ctx, func(d *sqlite.Dump) (err error) {
		filled, err = postgres.Fill(ctx, postgres.FillConfig{
			URL: string(settings.DatabaseURL), Version: version, Installation: postgres.Installation{ID: m.Installation, Canary: sealed},
			From: d, Progress: progress, Log: log,
			BeforeCommit: func() error {
				interrupted = true
				m.At = time.Now()
				return m.write(dir)
			},
		})
		return err
	})
	if err != nil {
		return nil, copyError(err, dir, interrupted)
	}
	m.Complete, m.At = true, time.Now()
	if err := m.write(dir); err != nil {
		return nil, err
	}
	return &StoreCopy{From: dir, To: to, Tables: filled.Tables, Rows: filled.Rows, Chains: filled.Chains, Finished: filled.Before}, nil
}

// copyError adds what to do about it to the error of a copy.
func copyError(err error, dir string, interrupted bool) error {
	advice := fmt.Sprintf("nothing was copied: the store in %s is as before, and the command can be repeated", dir)
	switch {
	case interrupted:
		advice = "whether the copy is complete is unknown: repeat the command, which finds out, and finishes it or starts over"
	case fault.CodeOf(err) == fault.Conflict:
		advice = "create a database of its own for the copy"
	}
	var public *fault.Error
	if errors.As(err, &public) {
		return &fault.Error{Code: public.Code, Message: public.Message + "; " + advice, Err: err}
	}
	return fmt.Errorf("%w; %s", err, advice)
}
