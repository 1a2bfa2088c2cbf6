//go:build long

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/examples/explore"
	"berth/runtimes/host/hosttest"
	"berth/schema/queue"
)

// queueCalls calls the queue of train as anna, at the daemon that serves now.
type queueCalls struct {
	*testing.T
	listen atomic.Pointer[string]
}

func (q *queueCalls) do(ctx context.Context, method, key string, body, into any) (status int) {
	data, err := json.Marshal(body)
	require.NoError(q, err)
	r, err := http.NewRequestWithContext(ctx, method,
		"http://"+*q.listen.Load()+"/api/v1/projects/"+labtest.Train.ProjectID()+"/app-instances/train/queue/jobs", bytes.NewReader(data))
	require.NoError(q, err)
	for name, value := range map[string]string{"Authorization": "Bearer " + userToken, "Content-Type": "application/json",
		"Idempotency-Key": key} {
		r.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0
	}
	if res.StatusCode < 300 {
		require.NoError(q, json.Unmarshal(text, into))
	}
	return res.StatusCode
}

// submitted submits until it has an answer. cut bounds the first try; 0: it is not cut off.
func (q *queueCalls) submitted(key string, cut time.Duration) (job queue.Job) {
	request := queue.Request{Script: "#!/bin/sh\nsleep 3600\n"}
	if cut > 0 {
		ctx, cancel := context.WithTimeout(q.Context(), cut) // the moment of the cut
		q.do(ctx, http.MethodPost, key, request, &job)
		cancel()
	}
	await.Equal(q, "the answer to "+key, http.StatusCreated, func() int { return q.do(q.Context(), http.MethodPost, key, request, &job) })
	return job
}

// 1,000 submissions to real Slurm, with 200 connections cut off and 20 kills of the daemon: each makes
// exactly one job.
func TestLongSubmitsToSlurmSurviveKills(t *testing.T) {
	seed := explore.Seed(t)
	submits, cuts, kills := explore.Count(100, 1000), explore.Count(20, 200), explore.Count(2, 20)
	t.Parallel()
	s := newScene(t, hosttest.Image())
	s.calm()
	q := &queueCalls{T: t}
	q.listen.Store(&s.daemon.listen)
	work := make(chan int)
	jobs := make([]queue.Job, submits)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range work {
				cut := time.Duration(0)
				if i%(submits/cuts) == 0 {
					cut = time.Duration(1+rand.New(rand.NewPCG(seed, uint64(i))).IntN(150)) * time.Millisecond
				}
				jobs[i] = q.submitted(fmt.Sprintf("key-%d", i), cut)
			}
		})
	}
	for i := range submits {
		work <- i
		if i%(submits/kills) == submits/kills/2 {
			s.daemon.kill()
			s.serve()
			q.listen.Store(&s.daemon.listen)
		}
	}
	close(work)
	wg.Wait()
	var list struct{ Items []queue.Job }
	s.eventually("the queue answers", func() string {
		if status := q.do(t.Context(), http.MethodGet, "", nil, &list); status != http.StatusOK {
			return fmt.Sprint(status)
		}
		return ""
	})
	require.Len(t, list.Items, submits)
	seen := map[string]string{}
	for _, j := range list.Items {
		require.Empty(t, seen[j.IdempotencyKey], "%s has two jobs", j.IdempotencyKey)
		seen[j.IdempotencyKey] = j.JobID
	}
	for i, j := range jobs {
		require.Equal(t, j.JobID, seen[fmt.Sprintf("key-%d", i)])
	}
	s.cancelJobs(labtest.Train)
}
