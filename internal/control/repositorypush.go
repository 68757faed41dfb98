package control

import (
	"context"
	"encoding/hex"
	"strings"
	"unicode"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// authorLength is the number of characters that are kept of the author of a commit, who may be anyone.
const authorLength = 255

// RepositoryPush is a document of a Git repository that is to be pushed to a gateway.
type RepositoryPush struct {
	AccountID string
	GatewayID string
	Kind      gateway.DocumentKind
	Content   []byte
	Commit    string // the hash in lower-case hexadecimal digits, 40 or 64 of them
	Author    string // of the commit, as "Name <email>"; it may hold anything
	// Within, if set, runs at the beginning of the push's transaction, also if the push changes
	// nothing. It may run more than once. If it returns an error, nothing is stored, and the push
	// returns the error.
	Within func(ctx context.Context, tx Tx) error
}

// PushRepository pushes p as its account, with the source repository (contract, section 5). The
// revision, the event and the audit record carry the commit and its author. Otherwise it works as
// PushSpec and PushConfiguration do: an invalid document is fault.ValidationFailed, and a gateway
// that does not exist fault.NotFound. An account that is not active is fault.Conflict. The caller
// bounds how many documents are in memory.
func (s *Service) PushRepository(ctx context.Context, p RepositoryPush) (*PushResult, error) {
	if raw, err := hex.DecodeString(p.Commit); err != nil || len(raw) != 20 && len(raw) != 32 || p.Commit != strings.ToLower(p.Commit) {
		return nil, fault.Invalid("commit", "must be the whole hash of a commit, in lower case")
	}
	a, err := view(ctx, s, func(tx ReadTx) (*account.Account, error) { return activeAccount(ctx, tx, p.AccountID) })
	if err != nil {
		return nil, err
	}
	c := trusted(RepositoryActor, a)
	c.Source = gateway.Repository
	return s.pushDocument(ctx, c, p.GatewayID, len(p.Content), func() (*document, error) {
		doc, err := s.readKind(ctx, c, p.Kind, p.Content)
		if err != nil {
			return nil, err
		}
		doc.commit, doc.author = p.Commit, authorName(p.Author)
		doc.within = func(ctx context.Context, w *work) error {
			if _, err := activeAccount(ctx, w, p.AccountID); err != nil || p.Within == nil {
				return err
			}
			return p.Within(ctx, w.Tx)
		}
		return doc, nil
	}, false, nil)
}

// activeAccount returns the account, for work that was not requested with a key.
func activeAccount(ctx context.Context, tx AccountReader, accountID string) (*account.Account, error) {
	a, err := existing(ctx, tx, accountID)
	if err == nil && a.State != account.Active {
		return nil, fault.New(fault.Conflict, "the account is suspended")
	}
	return a, err
}

// readKind reads a document of the given kind.
func (s *Service) readKind(ctx context.Context, actor *Actor, kind gateway.DocumentKind, content []byte) (*document, error) {
	if kind == gateway.ConfigDocument {
		return s.readConfiguration(ctx, actor, content)
	}
	return s.readSpec(ctx, actor, content)
}

// authorName returns the author of a commit in a form that is safe to store and to show: a single
// line of at most authorLength characters.
func authorName(author string) string {
	clean := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) { // also the replacement of bytes that are not UTF-8
			return ' '
		}
		return r
	}, strings.ToValidUTF8(author, " "))
	name := []rune(strings.Join(strings.Fields(clean), " "))
	return strings.TrimSpace(string(name[:min(len(name), authorLength)]))
}
