package control

import (
	"context"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/owner"
)

// KeyImport is an import of keys in pieces that is not finished: it has not stored all of its keys, or not recorded all of them.
type KeyImport struct {
	ID, AccountID string
	State         ImportState
	Call          RecordedCall
	Pieces        int // how many there are
}

// ImportState is the state of a KeyImport.
type ImportState int

// The states of a KeyImport. Until it is complete, none of its keys exists for any reader; they count for the bounds of the
// account alone.
const (
	ImportWriting  ImportState = iota // its call stores pieces
	ImportGivenUp                     // its pieces are deleted
	ImportComplete                    // its keys exist; a piece is deleted when its keys are recorded
)

// ImportPiece is the keys of an import that one transaction stores, and later records or deletes.
type ImportPiece struct {
	ImportID string
	Number   int
	KeyIDs   []string
	OwnerIDs []string // of the owners that were created for these keys
}

// ImportReader finds imports of keys in pieces.
type ImportReader interface {
	// KeyImports returns up to limit imports of all accounts, the oldest first.
	KeyImports(ctx context.Context, limit int) ([]KeyImport, error)
	// KeyImport returns nil if the import is finished.
	KeyImport(ctx context.Context, importID string) (*KeyImport, error)
	// FirstPiece returns nil if the import has no pieces.
	FirstPiece(ctx context.Context, importID string) (*ImportPiece, error)
	// ImportedKeys returns the keys of a piece of a complete import, in any order.
	ImportedKeys(ctx context.Context, p *ImportPiece) ([]apikey.Key, error)
	// StrayKey reports whether one of the keys has a gateway, plan or owner that does not exist. It finds keys of imports
	// that are not complete.
	StrayKey(ctx context.Context, keyIDs []string) (bool, error)
	// UnusedOwners returns those owners of a piece that have never been changed and have no keys, in whatever state, but
	// those of imports that are not complete. Such an import, if it is another one, begins anew without the owner.
	UnusedOwners(ctx context.Context, p *ImportPiece) ([]owner.Owner, error)
}

// ImportStore finds and changes imports of keys in pieces.
type ImportStore interface {
	ImportReader
	InsertKeyImport(ctx context.Context, m *KeyImport) error
	SetImportState(ctx context.Context, importID string, s ImportState) error
	// InsertPiece stores a piece and its keys.
	InsertPiece(ctx context.Context, accountID string, p *ImportPiece, keys []apikey.Key) error
	// DeleteImportedKeys deletes the keys of a piece. The caller deletes the piece.
	DeleteImportedKeys(ctx context.Context, p *ImportPiece) error
	DeletePiece(ctx context.Context, p *ImportPiece) error
	// DeleteKeyImport ends an import that has no pieces.
	DeleteKeyImport(ctx context.Context, importID string) error
}
