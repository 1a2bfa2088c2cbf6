package loop

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/status"
	"berth/schema"
)

// A merge that holds thousands of documents of one tenant leaves room in the log for those of others.
func TestHeldDocumentsOfOneTenantFillNoLog(t *testing.T) {
	var text bytes.Buffer
	r := recorder{log: slog.New(slog.NewTextHandler(&text, nil)), status: status.NewWriter(status.Options{Now: time.Now})}
	next := &reconciler.State{Main: "c445900fceee", Desired: &schema.Desired{Platform: &schema.Platform{}}}
	hold := func(tenant, name string) {
		key := schema.Key{Kind: schema.KindRoleBinding, Tenant: tenant, Name: name}
		next.Held = append(next.Held, schema.Held{Key: key, File: tenant + "/" + name, Reason: schema.HeldDenied})
	}
	for i := range 10_000 {
		hold("eve", strconv.Itoa(i))
	}
	hold("zoe", "one")
	r.logHeld(nil, next)
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	require.Len(t, lines, mostHeldLines+2)
	require.Contains(t, lines[mostHeldLines], "file=zoe/one")
	require.Contains(t, lines[mostHeldLines+1], `msg="more documents held"`)
	require.Contains(t, lines[mostHeldLines+1], "org_id=eve")
	require.Contains(t, lines[mostHeldLines+1], "count=9900")
}
