package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/schema/queue"
)

// queueClient submits jobs to assembly as its owner.
type queueClient struct {
	t             *testing.T
	listen, token string
}

const assemblyJobs = "/api/v1/projects/biology.genomes/app-instances/assembly/queue/jobs"

func (q *queueClient) do(ctx context.Context, method, path string, body any, key string) (status int, text []byte) {
	data, err := json.Marshal(body)
	require.NoError(q.t, err)
	r, err := http.NewRequestWithContext(ctx, method, "http://"+q.listen+path, bytes.NewReader(data))
	require.NoError(q.t, err)
	r.Header.Set("Authorization", "Bearer "+q.token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	if text, err = io.ReadAll(res.Body); err != nil {
		return 0, nil
	}
	return res.StatusCode, text
}

// submitted submits until it has an answer. cut bounds the first try; 0: it is not cut off.
func (q *queueClient) submitted(key string, cut time.Duration) string {
	ctx := q.t.Context()
	if cut > 0 {
		ctx, cancel := context.WithTimeout(ctx, cut)
		q.do(ctx, "POST", assemblyJobs, queue.Request{Script: "#!/bin/sh\ntrue\n", Name: key}, key)
		cancel()
	}
	for began := time.Now(); time.Since(began) < patience; time.Sleep(50 * time.Millisecond) {
		status, text := q.do(ctx, "POST", assemblyJobs, queue.Request{Script: "#!/bin/sh\ntrue\n", Name: key}, key)
		if status == http.StatusCreated {
			var job queue.Job
			require.NoError(q.t, json.Unmarshal(text, &job))
			require.Equal(q.t, []any{key, "dora", "biology.genomes"}, []any{job.IdempotencyKey, job.User, job.ProjectID})
			return job.JobID
		}
		require.Contains(q.t, []int{0, http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusUnauthorized, http.StatusNotFound}, status, "%s", text)
	}
	q.t.Error("no answer for " + key)
	return ""
}

// Each of many submissions makes exactly one job, while connections are cut off and the daemon is killed.
func submitsOnce(t *testing.T, submits, cuts, kills int) {
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	token := strings.Repeat("dora-", 8)
	secret := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(secret, []byte(token), 0o600))
	k := newKept(t, "north", listen, map[string]any{
		"listen": listen, "github": nil, "authority": map[string]any{"trust_main": true},
		"api": map[string]any{"tokens": []any{map[string]any{"login": labtest.AssemblyOwner, "token": map[string]string{"file": secret}}}},
	})
	k.git.MustCommit(t, "main", gittest.Commit{Message: "add assembly", Parent: k.git.Tip("main"), Files: map[string]string{labtest.AssemblyFile: labtest.AssemblyYAML()}})
	q := &queueClient{t, listen, token}
	p := serveProcess(t, k.path)
	require.NotEmpty(t, q.submitted("first", 0))

	var wg sync.WaitGroup
	work, done := make(chan int), make(chan struct{})
	ids := make([]string, submits)
	for range 8 {
		wg.Go(func() {
			for i := range work {
				cut := time.Duration(0)
				if i%(submits/cuts) == 0 {
					cut = time.Duration(1+rand.IntN(15)) * time.Millisecond
				}
				ids[i] = q.submitted(fmt.Sprintf("key-%d", i), cut)
			}
		})
	}
	go func() {
		defer close(done)
		for i := range submits {
			work <- i
			if kills > 0 && i%(submits/kills) == submits/kills/2 {
				_ = p.Process.Kill()
				_ = p.Wait()
				p = serveProcess(t, k.path)
			}
		}
		close(work)
	}()
	<-done
	wg.Wait()
	var list struct{ Items []queue.Job }
	status, text := q.do(t.Context(), "GET", assemblyJobs, nil, "")
	require.Equal(t, http.StatusOK, status, "%s", text)
	require.NoError(t, json.Unmarshal(text, &list))
	require.Len(t, list.Items, submits+1)
	seen := map[string]string{}
	for _, j := range list.Items {
		require.Empty(t, seen[j.IdempotencyKey], "%s has two jobs", j.IdempotencyKey)
		seen[j.IdempotencyKey] = j.JobID
	}
	for i, id := range ids {
		require.Equal(t, id, seen[fmt.Sprintf("key-%d", i)])
	}
	// The audit on the status branch has who submitted the last job.
	require.Eventually(t, func() bool {
		repo, err := gitrepo.OpenLocal(k.git.Dir)
		require.NoError(t, err)
		defer repo.Close()
		for line, err := range repo.Audit(t.Context(), k.git.Tip(reconciler.BranchStatus), statusbranch.LogOrder{}) {
			if err == nil && line.Value.Action == "queue.submit" && line.Value.Actor == labtest.AssemblyOwner && line.Value.Permission == "scheduler.queue.submit" {
				return true
			}
		}
		return false
	}, patience, 100*time.Millisecond)
}

// Requirement B1: a submission is neither lost nor doubled.
func TestSubmitsSurviveKills(t *testing.T) {
	t.Parallel()
	submitsOnce(t, 60, 12, 2)
}
