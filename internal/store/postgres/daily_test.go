package postgres

import (
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/cabletest"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: while PostgreSQL is silent, a reservation of a daily cap gives up by itself, even before other
// transactions that began earlier, and gives its connection up too. When the server responds again, so do reservations.
func TestReservationGivesUp(t *testing.T) {
	cable, url := cabletest.ForURL(t, migrated(t))
	db := openWith(t, Config{URL: url})
	today := time.Now().Unix() / 86400
	reserve := func() error {
		claims := []ratelimit.DailyClaim{{LimitID: "rt_1", Cap: 10, Ahead: 1, Needed: 1}}
		_, err := db.ReserveDaily(t.Context(), "node", today, claims)
		return err
	}
	began, silent := make(chan struct{}), make(chan struct{})
	ended := make(chan string, 2)
	go func() {
		_ = db.write(t.Context(), func(tx *tx) error {
			close(began)
			<-silent
			_, err := tx.Exec(t.Context(), "wait", `SELECT 1`)
			return err
		})
		ended <- "the other transaction"
	}()
	<-began
	if err := reserve(); err != nil { // from now on it has a connection
		t.Fatal(err)
	}
	cable.Sever()
	close(silent)
	go func() {
		if err := reserve(); err == nil {
			t.Error("it was reserved")
		}
		ended <- "the reservation"
	}()
	if first := <-ended; first != "the reservation" {
		t.Errorf("%s ended first", first)
	}
	<-ended
	cable.Mend()
	for err := reserve(); err != nil; { // broken connections are noticed one after another
		err = reserve()
	}
}
