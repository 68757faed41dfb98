package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keygate/keygate/internal/control"
)

// Guarantee: an urgent operation passes others that wait for the writer, but every second time one of the others comes
// next, so that they are not kept out.
func TestUrgentOperationsPassOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(nil, 1, nil, nil)
		only := <-p.free
		only.sql = &sql.Conn{} // as if it was open
		p.free <- only
		held, err := p.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		turns := make(chan string, 6)
		wait := func(ctx context.Context, name string) {
			go func() {
				c, err := p.take(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				turns <- name
				p.give(c)
			}()
			synctest.Wait()
		}
		for _, name := range []string{"1", "2", "3"} {
			wait(t.Context(), name)
		}
		for _, name := range []string{"a", "b", "c"} {
			wait(control.Urgent(t.Context()), name)
		}
		p.give(held)
		synctest.Wait()
		close(turns)
		var got []string
		for name := range turns {
			got = append(got, name)
		}
		if order := strings.Join(got, ""); order != "a1b2c3" {
			t.Errorf("got the order %s, want a1b2c3", order)
		}
	})
}
