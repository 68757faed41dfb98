package server_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
)

// importOf imports a key with the scope read:orders by its hash.
func (c *cluster) importOf(secret string) (keyID string) {
	c.Helper()
	sum := sha256.Sum256([]byte(secret))
	hash := hex.EncodeToString(sum[:])
	made := again(c, func() ([]client.ImportedKey, error) {
		return c.nodes[0].Admin.ImportKeys(c.Context(), client.ImportKeysRequest{Keys: []client.ImportKeyRequest{{Name: "old", Scope: "read:orders", Sha256: &hash}}})
	})
	if len(made) != 1 || !made[0].Imported || fmt.Sprint(made[0].Warnings) != "[strength_unknown]" {
		c.Fatalf("got %+v, want an imported key with the warning strength_unknown", made)
	}
	return made[0].KeyID
}

// Guarantee: one call imports 1,000 keys of 1,000 new owners, all of which every node accepts when it returns.
func TestLargeImportOnEveryNode(t *testing.T) {
	c := startCluster(t, 2)
	c.gateway()
	keys := make([]client.ImportKeyRequest, 1000)
	for i := range keys {
		secret, owner := fmt.Sprintf("sk_live_51HxAbCdEfGhIjKl-%d", i), fmt.Sprintf("customer-%d", i)
		keys[i] = client.ImportKeyRequest{Name: "old", Scope: "read:orders", Key: &secret, Owner: &owner}
	}
	made := again(c, func() ([]client.ImportedKey, error) {
		return c.nodes[0].Admin.ImportKeys(c.Context(), client.ImportKeysRequest{Keys: keys})
	})
	if len(made) != len(keys) {
		t.Fatalf("got %d keys, want %d", len(made), len(keys))
	}
	for i := 0; i < len(keys); i += 333 {
		if got := c.statuses(*keys[i].Key); fmt.Sprint(got) != "[200 200]" {
			t.Errorf("with key %d the nodes responded %v, want 200 from each", i, got)
		}
	}
}

// Guarantee: when a call that imports or revokes a key returns, every node accepts or refuses the key. It does not reach the
// upstream, and after a rotation every node accepts the new key, and no node the old one. A node that starts later
// accepts imported keys too.
func TestImportedKeysOnEveryNode(t *testing.T) {
	c := startCluster(t, 2)
	c.gateway()
	for i := range 5 {
		secret := fmt.Sprintf("sk_live_51HxAbCdEfGhIjKl-%d", i)
		keyID := c.importOf(secret)
		if got := c.statuses(secret); fmt.Sprint(got) != "[200 200]" {
			t.Fatalf("with an imported key the nodes responded %v, want 200 from each", got)
		}
		if got := c.revoke(c.nodes[i%2], keyID); got.Status != http.StatusOK {
			t.Fatalf("revoking got %d %s", got.Status, got.Body)
		}
		if got := c.statuses(secret); fmt.Sprint(got) != "[401 401]" {
			t.Fatalf("with a revoked key the nodes responded %v, want 401 from each", got)
		}
	}
	const secret = "sk_live_51HxAbCdEfGhIjKl-rotated"
	keyID := c.importOf(secret)
	if got := c.nodes[1].Through("", "GET", "/orders", secret, ""); strings.Contains(got.Body, secret) {
		t.Errorf("the upstream got the key: %s", got.Body)
	}
	const kept = "sk_live_51HxAbCdEfGhIjKl-kept"
	c.importOf(kept)
	c.start("node-2", c.url)
	if got := c.statuses(kept); fmt.Sprint(got) != "[200 200 200]" {
		t.Errorf("with a node that started after the import the nodes responded %v, want 200 from each", got)
	}
	made := again(c, func() (*client.NewKey, error) {
		return c.nodes[0].Admin.RotateKey(c.Context(), keyID, client.RotateKeyRequest{OverlapDays: 0})
	})
	if got := c.statuses(secret); fmt.Sprint(got) != "[401 401 401]" {
		t.Errorf("with a key that was replaced the nodes responded %v, want 401 from each", got)
	}
	if got := c.statuses(made.Secret); fmt.Sprint(got) != "[200 200 200]" || made.Imported {
		t.Errorf("with the new key the nodes responded %v, want 200 from each", got)
	}
}
