package agent_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/examples/need"
	"berth/runtimes"
	"berth/runtimes/host/agent"
)

func sleep(seconds string) runtimes.Op {
	return runtimes.Op{Run: &runtimes.Run{Program: "sh", Args: []string{"-c", "sleep " + seconds}}}
}

func TestEarlierEpochIsRefused(t *testing.T) {
	f := newFar(t)
	path := f.path("open", "a")
	at := func(epoch uint64, ops ...runtimes.Op) *agent.Fault {
		f.Helper()
		return f.ask(runtimes.Stamp{Epoch: epoch}, ops...).Fault
	}
	require.Equal(t, runtimes.CodeRefused, at(0, write(path, "x")).Code, "an effect needs a leader")
	require.NoFileExists(t, path)
	require.Nil(t, at(0, read(path), runtimes.Op{Info: &runtimes.Info{}}), "a look needs none")
	require.Nil(t, at(0, runtimes.Op{Run: &runtimes.Run{Program: "look", Args: []string{"-c", "true"}}}))
	require.Equal(t, runtimes.CodeRefused, at(0, runtimes.Op{Run: &runtimes.Run{Program: "look", Args: []string{"-c", "true", "x"}}}).Code)
	require.Nil(t, at(5, write(path, "five")))
	require.Equal(t, runtimes.CodeStaleEpoch, at(4, write(path, "four")).Code)
	require.Equal(t, runtimes.CodeStaleEpoch, at(4, read(path)).Code)
	require.Nil(t, at(5, write(path, "five again")))
	require.Nil(t, at(7, f.effect()))
	require.Equal(t, runtimes.CodeStaleEpoch, at(6, sleep("0")).Code)
	require.Equal(t, uint64(7), f.one2(runtimes.Op{Info: &runtimes.Info{}}).Info.Epoch)

	require.NoError(t, os.WriteFile(filepath.Join(f.state, "epoch"), []byte("bad\n"), 0o600))
	require.Equal(t, runtimes.CodeIO, at(9, write(path, "x")).Code, "an epoch that cannot be read lets nobody in")
}

// After a leader has read, no effect of an earlier one follows: what the leader found absent stays so. A person who reads deposes
// nobody.
func TestReadingLeaderDeposesEarlierOnes(t *testing.T) {
	f := newFar(t)
	path := f.path("open", "a")
	at := func(epoch uint64, ops ...runtimes.Op) *agent.Fault {
		f.Helper()
		return f.ask(runtimes.Stamp{Epoch: epoch}, ops...).Fault
	}
	stat := runtimes.Op{Stat: &runtimes.Stat{Paths: []string{path}}}
	require.Nil(t, at(0, stat))
	require.Nil(t, at(1, f.effect()))
	require.Nil(t, at(2, stat))
	require.Equal(t, runtimes.CodeStaleEpoch, at(1, write(path, "late")).Code)
	require.NoFileExists(t, path)
	require.Nil(t, at(0, stat))
	require.Nil(t, at(2, write(path, "now")))

	// A host that cannot record its leader, such as one with a full disk, is read all the same, and takes no effect.
	require.NoError(t, os.Remove(filepath.Join(f.state, "epoch")))
	require.NoError(t, os.Mkdir(filepath.Join(f.state, "epoch"), 0o755))
	require.Nil(t, at(3, stat))
	require.NotNil(t, at(3, write(path, "later")))
}

// An epoch belongs to its first leader. Another leader of the epoch is always refused.
func TestEpochHasOneLeader(t *testing.T) {
	f := newFar(t)
	path := f.path("open", "a")
	code := func(epoch uint64, leader string) runtimes.OpCode {
		f.Helper()
		if fault := f.ask(runtimes.Stamp{Epoch: epoch, Leader: leader}, write(path, leader)).Fault; fault != nil {
			return fault.Code
		}
		return ""
	}
	require.Empty(t, code(5, "first"))
	require.Equal(t, runtimes.CodeStaleEpoch, code(5, "other"))
	require.Equal(t, runtimes.CodeStaleEpoch, code(5, ""), "a daemon that names no leader")
	require.Contains(t, f.ask(runtimes.Stamp{Epoch: 5, Leader: "other"}, write(path, "x")).Fault.Message,
		"epoch 5 belongs to another leader")
	require.Empty(t, code(5, "first"))
	require.Empty(t, code(6, "other"))
	require.Equal(t, runtimes.CodeStaleEpoch, code(5, "first"))
	require.Equal(t, runtimes.CodeStaleEpoch, code(6, "first"))
	f.agent = f.again() // another process
	require.Equal(t, runtimes.CodeStaleEpoch, code(6, "first"))
	require.Empty(t, code(6, "other"))

	require.Equal(t, runtimes.CodeInvalid, f.ask(runtimes.Stamp{Epoch: 7, Leader: "two words"}, write(path, "x")).Fault.Code)
	for _, damage := range []string{"bad\n", "6 ot", "6", "", "\n"} { // the second was cut off
		require.NoError(t, os.WriteFile(filepath.Join(f.state, "leader"), []byte(damage), 0o600))
		require.Equal(t, runtimes.CodeStaleEpoch, code(5, "first"), "the epoch is known")
		require.Empty(t, code(6, "other"), "%q counts as no leader", damage)
		require.Equal(t, runtimes.CodeStaleEpoch, code(6, "first"))
	}
	require.NoError(t, os.WriteFile(filepath.Join(f.state, "epoch"), []byte("6"), 0o600))
	require.Equal(t, runtimes.CodeStaleEpoch, code(6, "first"), "the leader's file has the epoch too")
	require.Empty(t, code(6, "other"))
	require.NoError(t, os.WriteFile(filepath.Join(f.state, "epoch"), []byte("6"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(f.state, "leader"), []byte("bad\n"), 0o600))
	require.Equal(t, runtimes.CodeIO, code(7, "other"), "two files that cannot be read let nobody in")
}

// Of many concurrent leaders with one epoch, exactly one is admitted.
func TestEpochIsClaimedOnce(t *testing.T) {
	f := newFar(t)
	for epoch := uint64(1); epoch <= 10; epoch++ {
		var wait sync.WaitGroup
		var in atomic.Int32
		for i := range 4 {
			a := f.again()
			wait.Go(func() {
				if f.askOf(a, runtimes.Stamp{Epoch: epoch, Leader: fmt.Sprint("leader-", i)},
					write(f.path("open", fmt.Sprint(i)), "x")).Fault == nil {
					in.Add(1)
				}
			})
		}
		wait.Wait()
		require.EqualValues(t, 1, in.Load(), "epoch %d", epoch)
	}
}

// The state of an older helper has no leader; the first leader of that epoch claims
// it. An older helper can still read the epoch.
func TestEpochOfAnOlderHelper(t *testing.T) {
	f := newFar(t)
	at := func(epoch uint64, leader string) *agent.Fault {
		f.Helper()
		return f.ask(runtimes.Stamp{Epoch: epoch, Leader: leader}, write(f.path("open", "a"), "x")).Fault
	}
	epochFile := filepath.Join(f.state, "epoch")
	require.Nil(t, at(1, ""))
	require.NoError(t, os.WriteFile(epochFile, []byte("5\n"), 0o600))
	require.Equal(t, runtimes.CodeStaleEpoch, at(4, "first").Code)
	require.Nil(t, at(5, ""), "an older daemon")
	require.Nil(t, at(5, "first"))
	require.Equal(t, runtimes.CodeStaleEpoch, at(5, "other").Code)
	require.Equal(t, runtimes.CodeStaleEpoch, at(5, "").Code)
	data, err := os.ReadFile(epochFile)
	require.NoError(t, err)
	require.Equal(t, "5\n", string(data))
	require.Nil(t, at(6, "first"))
	data, err = os.ReadFile(epochFile)
	require.NoError(t, err)
	require.Equal(t, "6\n", string(data))

	// An older helper raised the epoch meanwhile: its leader is unknown again.
	require.NoError(t, os.WriteFile(epochFile, []byte("9\n"), 0o600))
	require.Equal(t, runtimes.CodeStaleEpoch, at(6, "first").Code)
	require.Nil(t, at(9, "other"))
	require.Equal(t, runtimes.CodeStaleEpoch, at(9, "first").Code)

	// A crash came between the two files: the later one counts.
	require.NoError(t, os.WriteFile(filepath.Join(f.state, "leader"), []byte("10 first\n"), 0o600))
	require.Equal(t, runtimes.CodeStaleEpoch, at(9, "other").Code)
	require.Equal(t, runtimes.CodeStaleEpoch, at(10, "other").Code)
	require.Nil(t, at(10, "first"))
}

// one2 sends a request without an epoch.
func (f *far) one2(op runtimes.Op) runtimes.Result {
	f.Helper()
	r := f.ask(runtimes.Stamp{}, op)
	require.Nil(f, r.Fault)
	return r.Results[0]
}

// The first effect of a later leader waits for running effects of earlier leaders,
// which start no other.
func TestLaterLeaderWaitsForRunningEffects(t *testing.T) {
	f := newFar(t)
	var mu sync.Mutex
	var order []string
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, s)
	}
	var wait sync.WaitGroup
	old := f.again()
	wait.Go(func() {
		f.askOf(old, runtimes.Stamp{Epoch: 1},
			runtimes.Op{Run: &runtimes.Run{Program: "sh", Args: []string{"-c", "touch " + f.path("open", "begun") + "; sleep 0.3"}}})
		note("old effect over")
	})
	await.NoError(t, "the effect of the earlier leader", func() (os.FileInfo, error) { return os.Stat(f.path("open", "begun")) })
	r := f.ask(runtimes.Stamp{Epoch: 2}, write(f.path("open", "new"), "x"))
	note("new effect over")
	require.Nil(t, r.Fault)
	wait.Wait()
	require.Equal(t, []string{"old effect over", "new effect over"}, order)
	require.Equal(t, runtimes.CodeStaleEpoch, f.askOf(old, runtimes.Stamp{Epoch: 1}, sleep("0")).Fault.Code)
}

// Effects of one epoch run in parallel, and waiting for them is bounded.
func TestEpochIsSharedAndBounded(t *testing.T) {
	f := newFar(t)
	f.do(write(f.path("open", "a"), ""))
	// Each of the effects ends once the file done is there.
	script := `echo >>"$0"; until test -e "$1"; do sleep 0.01; done`
	begun, done := f.path("open", "begun"), f.path("open", "done")
	answers := make(chan agent.Response, 4)
	for range 4 {
		a := f.again()
		go func() {
			answers <- f.askOf(a, f.stamp(),
				runtimes.Op{Run: &runtimes.Run{Program: "sh", Args: []string{"-c", script, begun, done}, TimeoutMS: serviceTimeout}})
		}()
	}
	await.Equal(t, "the lines of effects that run", 4, func() int {
		data, _ := os.ReadFile(begun)
		return bytes.Count(data, []byte("\n"))
	})
	line, err := json.Marshal(agent.Request{ID: 1, Stamp: runtimes.Stamp{Epoch: 9}, TimeoutMS: 50,
		Ops: []runtimes.Op{write(f.path("open", "a"), "x")}})
	require.NoError(t, err)
	require.Equal(t, runtimes.CodeBusy, f.session(f.agent, string(line)+"\n")[0].Fault.Code)
	require.NoError(t, os.WriteFile(done, nil, 0o600))
	for range 4 {
		r := await.Receive(t, "the answer to an effect", answers, func() any { return nil })
		require.Nil(t, r.Fault, "%v", r.Fault)
	}
}

// effect is an operation that is recorded and changes nothing.
func (f *far) effect() runtimes.Op {
	return runtimes.Op{Remove: &runtimes.Remove{Path: f.path("open", "none")}}
}

// ledger returns the valid entries of an action in both files, oldest first.
func (f *far) ledger(action string) []runtimes.LedgerEntry {
	f.Helper()
	var found []runtimes.LedgerEntry
	for _, file := range []string{"ledger.jsonl.1", "ledger.jsonl"} {
		data, err := os.ReadFile(filepath.Join(f.state, file))
		if !os.IsNotExist(err) {
			require.NoError(f, err)
		}
		for line := range strings.Lines(string(data)) {
			var e runtimes.LedgerEntry
			if json.Unmarshal([]byte(line), &e) == nil && e.Stamp.ActionID == action {
				found = append(found, e)
			}
		}
	}
	return found
}

func TestLedger(t *testing.T) {
	f := newFar(t)
	find := func(action string) []string {
		var ops []string
		for _, e := range f.ledger(action) {
			ops = append(ops, e.Op)
		}
		return ops
	}
	path := f.path("open", "a")
	f.do(write(path, "canary-content"), read(path),
		runtimes.Op{Run: &runtimes.Run{Program: "sh", Args: []string{"-c", "cat"}, Stdin: []byte("canary-stdin")}},
		runtimes.Op{Secret: &runtimes.MakeSecret{Path: f.path("open", "s"), Bytes: 16, Mode: 0o400}})
	want := []string{"write " + path, "run sh -c cat", "make secret " + f.path("open", "s")}
	require.Equal(t, want, find("action-1"))
	require.Empty(t, find("action-2"))

	// The ledger records each reader of a secret.
	stamp := f.stamp()
	stamp.ActionID = "action-2"
	require.Nil(t, f.ask(stamp, read(f.path("open", "s"))).Fault)
	require.Equal(t, []string{"read " + f.path("open", "s")}, find("action-2"))

	// An interrupted batch records where it stopped.
	stamp = f.stamp()
	stamp.ActionID = "action-3"
	r := f.ask(stamp, write(path, "x"), write("/etc/passwd", "x"), sleep("0"))
	require.Equal(t, runtimes.CodeRefused, r.Fault.Code)
	require.Equal(t, "write /etc/passwd", r.Fault.Op)
	require.Len(t, r.Results, 1)
	require.Equal(t, []string{"write " + path, "write /etc/passwd", "run sh -c sleep 0", "stopped at write /etc/passwd: refused"},
		find("action-3"))

	secret, err := os.ReadFile(f.path("open", "s"))
	require.NoError(t, err)
	all, err := os.ReadFile(filepath.Join(f.state, "ledger.jsonl"))
	require.NoError(t, err)
	for _, canary := range []string{"canary", string(secret), hex.EncodeToString(secret), base64.StdEncoding.EncodeToString(secret)} {
		require.NotContains(t, string(all), canary)
	}

	// A truncated line neither hides nor renumbers the next entries.
	require.NoError(t, os.WriteFile(filepath.Join(f.state, "ledger.jsonl"), append(all, `{"seq":99,"at":"20`...), 0o600))
	f.do(f.effect())
	entries := f.ledger("action-1")
	require.Equal(t, append(want, "remove "+f.path("open", "none")), find("action-1"))
	require.Equal(t, uint64(9), entries[len(entries)-1].Seq)
}

// Concurrent writers number entries without gaps, and the ledger stays bounded.
func TestLedgerIsNumberedAndRotated(t *testing.T) {
	f := newFar(t)
	var wait sync.WaitGroup
	for range 4 {
		a := f.again()
		wait.Go(func() {
			for range 25 {
				f.askOf(a, f.stamp(), f.effect())
			}
		})
	}
	wait.Wait()
	for i, e := range f.ledger("action-1") {
		require.Equal(t, uint64(i+1), e.Seq)
	}
	name := filepath.Join(f.state, "ledger.jsonl")
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	filler := strings.Repeat(" ", 1000) + "\n"
	require.NoError(t, os.WriteFile(name, []byte(strings.Repeat(filler, 4200)+string(data)), 0o600))
	f.do(f.effect())
	found := f.ledger("action-1")
	require.Len(t, found, 101, "the older file is kept")
	require.Equal(t, uint64(101), found[100].Seq)
	st, err := os.Stat(name)
	require.NoError(t, err)
	require.Less(t, st.Size(), int64(1000))
}

// The last number is found behind an invalid tail and across both files.
func TestLastLedgerNumberIsFound(t *testing.T) {
	f := newFar(t)
	name := filepath.Join(f.state, "ledger.jsonl")
	f.do(f.effect())
	first, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, append(first, strings.Repeat("x", 100<<10)+"\n"...), 0o600))
	require.Contains(t, f.fails("io", write(f.path("open", "a"), "x")), "ledger")
	require.NoFileExists(t, f.path("open", "a"))

	require.NoError(t, os.WriteFile(name+".1", first, 0o600))
	require.NoError(t, os.Remove(name))
	f.do(f.effect())
	found := f.ledger("action-1")
	require.Equal(t, uint64(2), found[len(found)-1].Seq)
	// A first entry that a crash cut off numbers nothing.
	require.NoError(t, os.Remove(name+".1"))
	require.NoError(t, os.WriteFile(name, []byte(`{"seq":1,"at`), 0o600))
	f.do(f.effect())
}

// The next number follows the highest valid one in both files.
func TestLedgerNumbersNeverRepeatOrOverflow(t *testing.T) {
	entry := func(seq string) string {
		return `{"seq":` + seq + `,"at":"2026-08-01T10:00:00Z","stamp":{"epoch":1,"commit":"","correlation_id":"","action_id":"action-1"},"op":"begin"}` + "\n"
	}
	for name, c := range map[string]struct {
		older, ledger string
		want          uint64 // of the next entry
	}{
		"its only entry was cut off after a rotation": {entry("5000"), `{"seq":5001,"at`, 5001},
		"nothing but a blank line after a rotation":   {entry("5000"), "\n", 5001},
		"an older copy was put in its place":          {entry("5000"), entry("7"), 5001},
		"the older file is gone":                      {"", entry("7"), 8},
		"the older file holds no entry":               {"x\n", entry("7"), 8},
		"a number at its end that is too large":       {entry("41"), entry("42") + entry("18446744073709551615"), 43},
		"one that would overflow with the next":       {"", entry("42") + entry("18446744073709551614"), 43},
		"one that other readers would round":          {"", entry("42") + entry("9007199254740993"), 43},
		"an invalid number":                           {"", entry("42") + entry("1e3") + entry("-1") + entry("1.5") + entry(`"7"`), 43},
		"one of the older file that is too large":     {entry("42") + entry("18446744073709551615"), `{"seq":43,"at`, 43},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t)
			f.do(runtimes.Op{Info: &runtimes.Info{}})
			require.NoError(t, os.MkdirAll(f.state, 0o700))
			ledger := filepath.Join(f.state, "ledger.jsonl")
			require.NoError(t, os.WriteFile(ledger, []byte(c.ledger), 0o600))
			if c.older != "" {
				require.NoError(t, os.WriteFile(ledger+".1", []byte(c.older), 0o600))
			}
			stamp := f.stamp()
			stamp.ActionID = "next"
			for i := range uint64(3) {
				require.Nil(t, f.ask(stamp, f.effect()).Fault)
				found := f.ledger("next")
				require.Len(t, found, int(i)+1)
				require.Equal(t, c.want+i, found[i].Seq)
			}
		})
	}
	t.Run("all numbers are used", func(t *testing.T) {
		f := newFar(t)
		require.NoError(t, os.MkdirAll(f.state, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(f.state, "ledger.jsonl"), []byte(entry("9007199254740991")), 0o600))
		require.Contains(t, f.fails("io", write(f.path("open", "a"), "x")), "has the last number")
		require.NoFileExists(t, f.path("open", "a"))
	})
}

// Each ledger entry repeats the stamp.
func TestStampsAreBounded(t *testing.T) {
	f := newFar(t)
	for _, hostile := range []string{strings.Repeat("a", 201), "a\nb", "a b", "é", "\x00"} {
		for i, stamp := range []runtimes.Stamp{{Commit: hostile}, {CorrelationID: hostile}, {ActionID: hostile}, {Verb: hostile},
			{Leader: hostile}} {
			stamp.Epoch = 1
			r := f.ask(stamp, f.effect())
			require.NotNil(t, r.Fault, "%d %q", i, hostile)
			require.Equal(t, runtimes.CodeInvalid, r.Fault.Code)
		}
	}
	require.NoFileExists(t, filepath.Join(f.state, "ledger.jsonl"))
}

func TestNoEffectWithoutLedger(t *testing.T) {
	f := newFar(t)
	f.do(write(f.path("open", "a"), "x"))
	name := filepath.Join(f.state, "ledger.jsonl")
	require.NoError(t, os.Remove(name))
	require.NoError(t, os.Mkdir(name, 0o700))
	require.Contains(t, f.fails("io", write(f.path("open", "b"), "x")), "ledger")
	require.NoFileExists(t, f.path("open", "b"))
}

func user(name string, uid int, absent bool) runtimes.Op {
	return runtimes.Op{User: &runtimes.User{Name: name, UID: uid, Absent: absent}}
}

func TestAccountsAreMadeAndRemoved(t *testing.T) {
	f := newFar(t)
	table := func(name string) string {
		data, err := os.ReadFile(filepath.Join(f.etc, name))
		require.NoError(t, err)
		return string(data)
	}
	before := table("passwd") + table("group") + table("shadow")
	require.True(t, f.one(user("marie", 7742001, false)).Changed)
	require.False(t, f.one(user("marie", 7742001, false)).Changed)
	require.True(t, f.one(user("paul", 7742002, false)).Changed)
	require.Contains(t, table("passwd"), "marie:x:7742001:7742001:managed by Berth:/home/marie:/bin/bash\n")
	require.Contains(t, table("group"), "marie:x:7742001:\n")
	require.Regexp(t, `(?m)^marie:!:\d+:0:99999:7:::$`, table("shadow"), "no password")
	st, err := os.Stat(filepath.Join(f.etc, "shadow"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), st.Mode().Perm(), "the table keeps its mode")

	require.Contains(t, f.fails("refused", user("marie", 7742003, false)), "gid 7742001, want 7742003")
	require.Contains(t, f.fails("refused", user("other", 7742001, false)), "7742001 belongs to")
	require.Contains(t, f.fails("refused", user("lonely", 7742004, false)), "gid 1700")
	f.fails("refused", user("root", 0, false))
	f.fails("refused", user("alice", 1500, true))
	for _, name := range []string{"", "a:b", "a\nb", "-a", ".", "..", ".a", "1001", "1.2", "_a", "a,b", "a b", strings.Repeat("a", 40),
		"../x", "root:x:0:0"} {
		f.fails("invalid", user(name, 7742009, false))
	}

	for i, name := range []string{"first.last", "J.Doe_3", "7of9"} {
		require.True(t, f.one(user(name, 7742020+i, false)).Changed)
		require.Contains(t, table("passwd"), "\n"+name+":x:")
		require.True(t, f.one(user(name, 7742020+i, true)).Changed)
	}

	// Only what was made here, with that uid, is removed.
	require.False(t, f.one(user("alice", 7742500, true)).Changed)
	require.False(t, f.one(user("marie", 7742002, true)).Changed)
	require.True(t, f.one(user("marie", 7742001, true)).Changed)
	require.False(t, f.one(user("marie", 7742001, true)).Changed)
	require.True(t, f.one(user("paul", 7742002, true)).Changed)
	require.Equal(t, before, table("passwd")+table("group")+table("shadow"))

	// An account of the same name and uid that someone else made is neither
	// handed over nor taken away, be it an administrator's or not.
	f.add("passwd", "carl:x:7742010:7742010::/:/bin/sh\n")
	f.add("group", "carl:x:7742010:\n")
	require.Contains(t, f.fails("refused", user("carl", 7742010, false)), "not made by Berth")
	require.False(t, f.one(user("carl", 7742010, true)).Changed)
	require.Contains(t, table("passwd"), "carl:x:7742010")
}

// manyUsers returns operations for as many accounts.
func manyUsers(n int, absent bool) (ops []runtimes.Op) {
	for i := range n {
		ops = append(ops, user(fmt.Sprintf("u%d", i), 7742100+i, absent))
	}
	return ops
}

// A request makes or removes many accounts with as many changes of files as one account.
func TestAccountsOfARequestAreWrittenTogether(t *testing.T) {
	const many = 300
	for _, absent := range []bool{false, true} {
		place := func(users int) *far {
			f := newFar(t)
			if absent {
				f.do(manyUsers(users, false)...)
			}
			return f
		}
		changes := 1
		for place(1).killedAfter(changes, manyUsers(1, absent)) {
			changes++
			require.Less(t, changes, 50)
		}
		f := place(many)
		require.False(t, f.killedAfter(changes, manyUsers(many, absent)), "more than %d changes", changes)
		data, err := os.ReadFile(filepath.Join(f.etc, "passwd"))
		require.NoError(t, err)
		require.Equal(t, !absent, strings.Count(string(data), "managed by Berth") == many)
	}
}

// A refused account stops a request: those before it are made, and none after it.
func TestRefusedAccountKeepsThoseBeforeIt(t *testing.T) {
	f := newFar(t)
	f.do(user("half", 7742101, false))
	f.add("group", "wheel:x:10:u2\n")
	passwd := func() string {
		data, err := os.ReadFile(filepath.Join(f.etc, "passwd"))
		require.NoError(t, err)
		return string(data)
	}
	r := f.ask(f.stamp(), append([]runtimes.Op{user("half", 7742101, true)}, manyUsers(4, false)...)...)
	require.Equal(t, "make account u2, uid 7742102", r.Fault.Op)
	require.Contains(t, r.Fault.Message, "wheel")
	require.Len(t, r.Results, 3)
	require.Contains(t, passwd(), "u1:x:7742101")
	require.NotRegexp(t, "(?m)^(half|u2|u3):", passwd())

	// Two of one request cannot share a uid, and the same account twice is one.
	r = f.ask(f.stamp(), user("u5", 7742105, false), user("u5", 7742105, false), user("u6", 7742105, false))
	require.Len(t, r.Results, 2)
	require.False(t, r.Results[1].Changed)
	require.Contains(t, r.Fault.Message, "7742105 belongs to")
	r = f.ask(f.stamp(), user("u5", 7742105, true), user("u5", 7742105, true))
	require.Nil(t, r.Fault)
	require.Equal(t, []bool{true, false}, []bool{r.Results[0].Changed, r.Results[1].Changed}, "it is recorded")

	f.add("passwd", "u7:x:7742107:7742107::/:/bin/sh\n")
	r = f.ask(f.stamp(), user("u0", 7742100, true), user("a b", 1, true), user("u1", 7742101, true))
	require.Equal(t, runtimes.CodeInvalid, r.Fault.Code)
	require.NotContains(t, passwd(), "u0:")
	require.Contains(t, passwd(), "u1:")
}

// A directory service that has none of the users is asked once.
func TestDirectoryIsAskedOnceForManyUsers(t *testing.T) {
	f := newFar(t)
	dir := t.TempDir()
	getent, calls, has := filepath.Join(dir, "getent"), filepath.Join(dir, "calls"), filepath.Join(dir, "has")
	require.NoError(t, os.WriteFile(getent, []byte(`#!/bin/sh
echo "$*" >>`+calls+`
shift
for key; do grep -E "^$key:|^[^:]*:x:$key:" `+has+` || missing=2; done
exit ${missing:-0}
`), 0o755))
	require.NoError(t, os.WriteFile(has, nil, 0o644))
	f.agent.UseDirectory(getent)
	f.do(manyUsers(100, false)...)
	f.do(manyUsers(100, false)...) // they exist: nobody is asked
	data, err := os.ReadFile(calls)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(data), "\n"))

	require.NoError(t, os.WriteFile(has,
		[]byte("same:x:7742201:100::/:/bin/sh\nother:x:7742202:100::/:/bin/sh\nname:x:7742299:100::/:/bin/sh\n"), 0o644))
	require.True(t, f.one(user("same", 7742201, false)).Changed)
	for _, taken := range []runtimes.Op{user("mine", 7742202, false), user("name", 7742203, false)} {
		r := f.ask(f.stamp(), user("first"+taken.User.Name, taken.User.UID+10, false), taken,
			user("last"+taken.User.Name, taken.User.UID+20, false))
		require.Len(t, r.Results, 1)
		require.Contains(t, r.Fault.Message, "the directory service already has")
		table, err := os.ReadFile(filepath.Join(f.etc, "passwd"))
		require.NoError(t, err)
		require.Contains(t, string(table), "first"+taken.User.Name)
		require.NotContains(t, string(table), "last"+taken.User.Name)
		require.NotContains(t, string(table), taken.User.Name+":x:"+fmt.Sprint(taken.User.UID))
		require.False(t, f.one(user(taken.User.Name, taken.User.UID, true)).Changed, "a refused account is not recorded")
	}
}

func TestAdministratorsAreRefused(t *testing.T) {
	f := newFar(t)
	f.do(user("marie", 7742001, false))
	f.add("group", "wheel:x:10:paul\nsudo:x:27:debian,marie\n")
	require.Contains(t, f.fails("refused", user("paul", 7742002, false)), "wheel", "left over from an account of the name")
	require.Contains(t, f.fails("refused", user("marie", 7742001, false)), "sudo")
	data, err := os.ReadFile(filepath.Join(f.etc, "passwd"))
	require.NoError(t, err)
	require.NotContains(t, string(data), "paul")
}

// The next request repairs the tables after a crash. An account that a person has
// replaced is not removed.
func TestAccountsAreRepairedAfterACrash(t *testing.T) {
	f := newFar(t)
	f.do(user("marie", 7742001, false))
	passwd := filepath.Join(f.etc, "passwd")
	data, err := os.ReadFile(passwd)
	require.NoError(t, err)
	half, _, _ := strings.Cut(string(data), "marie:")
	require.NoError(t, os.WriteFile(passwd, []byte(half), 0o644))
	require.True(t, f.one(user("marie", 7742001, false)).Changed)
	require.NoError(t, os.WriteFile(passwd, []byte(half+"marie:x:7742001:7742001:by hand:/:/bin/sh\n"), 0o644))
	f.fails("refused", user("marie", 7742001, true))
}

func TestAccountsAreMadeInParallel(t *testing.T) {
	f := newFar(t)
	var wait sync.WaitGroup
	for i := range 8 {
		a := f.again()
		wait.Go(func() { f.askOf(a, f.stamp(), user(fmt.Sprintf("u%d", i), 7742100+i, false)) })
	}
	wait.Wait()
	data, err := os.ReadFile(filepath.Join(f.etc, "passwd"))
	require.NoError(t, err)
	require.Equal(t, 8, strings.Count(string(data), "managed by Berth"))
}

// Processes of a user end before the removal of the account.
func TestProcessesOfRemovedUsersEnd(t *testing.T) {
	need.Root(t)
	f := newFar(t)
	marie, paul, other := ownUID(0), ownUID(1), ownUID(2)
	f.do(user("marie", marie, false))
	spawn := func(uid int) *exec.Cmd {
		cmd := exec.Command("/bin/sleep", "3600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	f.do(user("paul", paul, false))
	left, others := spawn(marie), spawn(other)
	require.False(t, f.one(user("marie", other, true)).Changed, "another account")
	require.NoError(t, left.Process.Signal(syscall.Signal(0)))
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }()
	f.do(user("paul", paul, true), user("marie", marie, true))
	require.ErrorContains(t, await.Receive(t, "the end of the process of an account that is gone", ended,
		func() any { return left.Process.Pid }), "killed")
	require.NoError(t, others.Process.Signal(syscall.Signal(0)), "another user's process continues")
}

// A damaged record of accounts is renamed and rebuilt: an account belongs to Berth only with Berth's mark and the uid.
func TestDamagedRecordOfAccountsIsMadeAgain(t *testing.T) {
	f := newFar(t)
	f.do(user("anna", 7742001, false), user("bert", 7742002, false))
	f.add("passwd", "carl:x:7742010:7742010::/:/bin/sh\n")
	f.add("group", "carl:x:7742010:\n")
	record := filepath.Join(f.state, "users.json")
	data, err := os.ReadFile(record)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(record, data[:len(data)/2], 0o600))
	require.False(t, f.one(user("anna", 7742001, false)).Changed)
	require.FileExists(t, record+".damaged")
	require.Contains(t, f.fails("refused", user("carl", 7742010, false)), "not made by Berth")
	require.True(t, f.one(user("dora", 7742003, false)).Changed)
	data, err = os.ReadFile(record)
	require.NoError(t, err)
	edited := bytes.Replace(data, []byte(`"dora": 7742003`), []byte(`"carl": 7742010`), 1)
	require.NotEqual(t, data, edited)
	require.NoError(t, os.WriteFile(record, edited, 0o600))
	require.False(t, f.one(user("carl", 7742010, true)).Changed, "an edited record is not believed")
	require.NoError(t, os.WriteFile(record, nil, 0o600))
	require.True(t, f.one(user("bert", 7742002, true)).Changed)
	data, err = os.ReadFile(filepath.Join(f.etc, "passwd"))
	require.NoError(t, err)
	require.Contains(t, string(data), "anna:x:7742001")
	require.NotContains(t, string(data), "bert:")
}
