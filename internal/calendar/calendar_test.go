package calendar

import (
	"archive/zip"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// zoneNames returns the names of all time zones of the Go distribution.
func zoneNames(t *testing.T) (names []string) {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		if !f.FileInfo().IsDir() {
			names = append(names, f.Name)
		}
	}
	return names
}

// dateOf returns the local date of t, as midnight in UTC.
func dateOf(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// firstInstants returns at which instants from begin on a local date comes that is later than all before. It walks
// through the time in steps that become smaller near a new date. Near a change of the clocks, which may show a date for
// a minute and then the one before it again, no step between six hours and a minute is sure to see that.
func firstInstants(begin, end time.Time, zone *time.Location) (dates, at []time.Time) {
	latest := dateOf(begin.In(zone))
	later := func(t time.Time) bool { return dateOf(t.In(zone)).After(latest) }
	for t := begin; ; {
		steps := []time.Duration{6 * time.Hour, 20 * time.Minute, time.Minute, 5 * time.Second, time.Second}
		if _, change := t.In(zone).ZoneBounds(); !change.IsZero() && change.Sub(t) < 40*time.Hour {
			steps = []time.Duration{6 * time.Hour, time.Minute, time.Second}
		}
		for _, step := range steps {
			for !later(t.Add(step)) {
				t = t.Add(step)
			}
		}
		if t = t.Add(time.Second); t.After(end) {
			return dates, at
		}
		latest = dateOf(t.In(zone))
		dates, at = append(dates, latest), append(at, t)
	}
}

// changes returns a text that is equal for zones with equal clocks in ten years.
func changes(begin, end time.Time, zone *time.Location) string {
	var b strings.Builder
	for t := begin.In(zone); t.Before(end); {
		_, offset := t.Zone()
		_, next := t.ZoneBounds()
		fmt.Fprint(&b, offset, " ", next.Unix(), " ")
		if next.IsZero() {
			break
		}
		t = next
	}
	return b.String()
}

// TestWindowsOfEveryZone compares the windows of every zone, unit and anchor over ten years with what a walk through the time
// finds.
func TestWindowsOfEveryZone(t *testing.T) {
	begin, end := time.Date(2006, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2016, 1, 1, 0, 0, 0, 0, time.UTC)
	names := zoneNames(t)
	if testing.Short() {
		names = []string{"Africa/Cairo", "America/St_Johns", "Pacific/Apia", "Asia/Tehran", "America/Sao_Paulo", "UTC"}
	}
	done := map[string]bool{} // many zones are equal
	for _, name := range names {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		same := changes(begin, end, zone)
		if done[same] {
			continue
		}
		done[same] = true
		dates, at := firstInstants(begin, end, zone)
		compare(t, name, Calendar{Day, zone, 1}, dates, at)
		compare(t, name, Calendar{Week, zone, 1}, dates, at)
		for anchor := 1; anchor <= 28; anchor++ {
			compare(t, name, Calendar{Month, zone, anchor}, dates, at)
		}
	}
}

func compare(t *testing.T, name string, c Calendar, dates, at []time.Time) {
	t.Helper()
	var edges []time.Time
	for i, d := range dates {
		begins := c.Unit == Day || c.floor(d).Equal(d)
		if !begins && i > 0 && dates[i-1].Before(c.floor(d)) { // the zone leaves out the date on which it begins
			begins = true
		}
		if begins {
			edges = append(edges, at[i])
		}
	}
	for i := 1; i < len(edges); i++ {
		for _, within := range []time.Time{edges[i-1], edges[i-1].Add(edges[i].Sub(edges[i-1]) / 2), edges[i].Add(-1)} {
			if start, end := c.Window(within); !start.Equal(edges[i-1]) || !end.Equal(edges[i]) {
				t.Errorf("%s, %s from %d: the window of %s is %s to %s, want %s to %s", name, c.Unit, c.Anchor, within, start, end, edges[i-1], edges[i])
				return
			}
		}
	}
}

func TestTotalNeverEnds(t *testing.T) {
	c := Calendar{Unit: Total, Zone: time.UTC}
	for _, now := range []time.Time{time.Unix(0, 0), time.Unix(1<<33, 0)} {
		if start, end := c.Window(now); !start.Equal(time.Unix(0, 0)) || !end.Equal(Forever()) {
			t.Errorf("the window of %s is %s to %s", now, start, end)
		}
	}
}
