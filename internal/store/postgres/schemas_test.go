package postgres_test

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/store/postgres"
)

// Guarantee: a server starts on the schema of each release, whichever rows it has: keys work, and the records can be
// read.
func TestServerStartsOnEverySchema(t *testing.T) {
	v, err := postgres.SchemaVersion(t.Context(), postgrestest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	for schema := int64(1); schema <= v.Newest; schema++ {
		t.Run(fmt.Sprint(schema), func(t *testing.T) {
			url, admin, other := past(t, schema)
			key := filepath.Join(t.TempDir(), "secret.key")
			if err := os.WriteFile(key, make([]byte, 32), 0o600); err != nil {
				t.Fatal(err)
			}
			s := keygatetest.StartWith(t, keygatetest.Options{
				Args: []string{"--database-url", url, "--secret-key-file", key}, Settings: map[string]string{config.AdminKeyVariable: admin},
			})
			for _, path := range []string{"/v1/keys/" + other, "/v1/account", "/v1/requests"} {
				if got := s.Call("GET", path, admin, ""); got.Status != http.StatusOK || strings.Contains(path, other) && !strings.Contains(got.Body, `"other"`) {
					t.Errorf("%s: got %d %s", path, got.Status, got.Body)
				}
			}
		})
	}
}

// past creates a database with a schema, an account and two of its keys. It returns the secret of a key with
// the scope admin, and the identifier of another.
func past(t *testing.T, schema int64) (url, admin, other string) {
	t.Helper()
	url = postgrestest.Empty(t)
	postgres.MigrateTo(t, url, schema, func(db *sql.DB) error {
		account := id.New(id.Account)
		if _, err := db.ExecContext(t.Context(), `INSERT INTO accounts (id, name, plan, created_at) VALUES ($1, 'default', 'platform', 1)`, account); err != nil {
			return err
		}
		for _, name := range []string{"admin", "other"} {
			text, err := apikey.Generate(apikey.AccountLevel, rand.Reader)
			if err != nil {
				return err
			}
			digest, keyID := apikey.DigestOf(text), id.New(id.Key)
			_, err = db.ExecContext(t.Context(), `INSERT INTO keys (id, account_id, digest, prefix, level, phase, word, created_at, version, name)
				VALUES ($1, $2, $3, $4, 2, 0, 3, 1, 1, $5)`, keyID, account, digest[:], apikey.PrefixOf(text), name)
			if err != nil {
				return err
			}
			if other = keyID; name == "admin" {
				admin = text
			}
		}
		return nil
	})
	return url, admin, other
}
