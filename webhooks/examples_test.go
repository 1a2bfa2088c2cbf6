package webhooks_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/webhooks/github"
)

// GitHub publishes examples of all its events. Each is acknowledged and counted.
func TestPublishedExamplesAreAcknowledged(t *testing.T) {
	f, err := os.Open("testdata/examples.json.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var examples []struct {
		Event string
		Body  json.RawMessage
	}
	require.NoError(t, json.NewDecoder(z).Decode(&examples))
	require.Len(t, examples, 329)

	in := &inbox{}
	h, reg := newHandler(t, in, nil)
	kinds := map[string]int{}
	var unread []string
	for _, x := range examples {
		in.events = nil
		w := httptest.NewRecorder()
		h.ServeHTTP(w, delivery(x.Event, string(x.Body)))
		require.Equal(t, http.StatusAccepted, w.Code, x.Event)
		for _, e := range in.events {
			kinds[string(e.Kind)]++
		}
		if _, err := github.Webhook().Read("", x.Event, "application/json", x.Body); err != nil {
			unread = append(unread, x.Event+": "+err.Error())
		}
	}

	families, err := reg.Gather()
	require.NoError(t, err)
	counts := map[string]int{}
	for _, family := range families {
		if family.GetName() != "berth_webhook_deliveries_total" {
			continue
		}
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			counts[strings.Join(labels, " ")] += int(m.Counter.GetValue())
		}
	}
	table := func(m map[string]int) (lines []string) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			lines = append(lines, fmt.Sprintf("%s %d", k, m[k]))
		}
		return lines
	}
	require.Equal(t, []string{
		"check_run ignored 6", "check_run queued 1", "check_run unread 2", "check_suite ignored 7", "check_suite queued 2",
		"issue_comment ignored 9", // of issues that are no pull requests
		"merge_group queued 2", "other ignored 256", "ping ignored 4", "pull_request ignored 14", "pull_request queued 15",
		"pull_request_review queued 4",
		"push ignored 5", // tags
		"push queued 2",
	}, table(counts))
	require.Equal(t, []string{"merge_group 2", "pull_request 19", "push 2", "rerequest 3", "unread 2"}, table(kinds))
	require.Len(t, unread, 2)
	for _, why := range unread { // times without a "T", as GitHub once wrote them
		require.Regexp(t, `^check_run: parsing time "\\?"2018-04-25 20:42:10`, why)
	}
}
