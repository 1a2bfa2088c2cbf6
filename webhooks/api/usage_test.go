package api

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/schema"
	"berth/schema/usage"
)

// usage is the use of a unit by two projects. It fails with the error of the queues.
func (q *queues) usage(context.Context, schema.Key) (usage.LiveUsage, error) {
	q.called(runtimes.QueueScope{})
	used := usage.Amounts{CPUSeconds: 7200, GPUSeconds: 3600, MemoryMiBSeconds: 1024, BillingSeconds: 7200}
	return usage.LiveUsage{ObservedAt: time.Now().UTC().Add(-time.Hour), Reason: "accounting does not answer", Days: []usage.DaySum{
		{Day: "2026-11-23", ProjectID: "physics.lattice", Closed: true, Jobs: 2, Amounts: used},
		{Day: "2026-11-24", ProjectID: "physics.collider", Jobs: 9, Amounts: used},
	}}, q.err
}

// A project's usage is that of its own jobs, with its time, and is read again only for a caller with live. A unit that
// cannot be read has no days, which are not zeros. A caller without the permission gets not found.
func TestUsageOfAProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q, _ := queueWorld(t)
		read := func(target string) string {
			res := w.get(target, personToken(anna))
			require.Equal(t, http.StatusOK, res.StatusCode)
			return string(body(t, res))
		}
		const unit = `{"project_id":"physics.lattice","items":[{"unit":"Instance physics.lattice/train","app_slug":"slurm",`
		const got = unit + `"observed_at":"1999-12-31T23:00:00Z","age_seconds":3600,"reason":"accounting does not answer","days":` +
			`[{"day":"2026-11-23","closed":true,"jobs":2,"cpu_seconds":7200,"gpu_seconds":3600,"memory_mib_seconds":1024,` +
			`"billing_seconds":7200}]}]}` + "\n"
		require.Equal(t, got, read(lattice+"/usage"))
		require.Equal(t, got, read(lattice+"/usage?live=true"))
		require.Equal(t, 1, q.calls)
		q.err = context.DeadlineExceeded
		time.Sleep(10 * time.Second)
		require.Equal(t, unit+`"reason":"the records of usage cannot be read"}]}`+"\n", read(lattice+"/usage?live=true"))
		require.Equal(t, 2, q.calls)

		require.Equal(t, codeQuery, codeOf(t, w.get(lattice+"/usage?live=1", personToken(anna))))
		require.Equal(t, codeQuery, codeOf(t, w.get(lattice+"/usage?from=2026-11-01", personToken(anna))))
		require.Equal(t, codeNotFound, codeOf(t, w.get("/api/v1/projects/physics.collider/usage", personToken(anna))))
		require.Equal(t, codeNotFound, codeOf(t, w.get(lattice+"/usage", personToken(otto))))
		w.api.o.Live = func() Live { return Live{} }
		require.Equal(t, codeNotReady, codeOf(t, w.get(lattice+"/usage", personToken(anna))))
	})
}
