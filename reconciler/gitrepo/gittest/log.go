package gittest

import (
	"bytes"
	"fmt"
	"time"
)

// LongLog makes a branch berth/status with events, each in a segment of its own, a minute apart. It returns the
// commit.
func LongLog(t TB, s *Server, events int) string {
	t.Helper()
	var in bytes.Buffer
	fmt.Fprintf(&in, "feature done\ncommit refs/heads/berth/status\ncommitter Berth <berth@localhost> 1793527200 +0000\ndata 2\nx\n")
	first := time.Unix(1_793_527_200, 0).UTC()
	for i := range events {
		at := first.Add(time.Duration(i) * time.Minute)
		line := fmt.Sprintf(`{"event_id":"e%d","event_type":"apps.instance.running","occurred_at":%q,"version":"1","correlation_id":"c%d","payload":{"project_id":"physics.lattice","app_instance_id":"train"}}`+"\n", i, at.Format(time.RFC3339), i)
		fmt.Fprintf(&in, "M 100644 inline events/%s/%012d-1700000000.jsonl\ndata %d\n%s\n", at.Format("2006/01/02/15"), i+1, len(line),
			line)
	}
	fmt.Fprint(&in, "done\n")
	if _, err := s.GitInput(&in, "fast-import", "--quiet"); err != nil {
		t.Fatalf("%v", err)
	}
	tip, err := s.Git("rev-parse", "berth/status")
	if err != nil {
		t.Fatalf("%v", err)
	}
	return tip
}
