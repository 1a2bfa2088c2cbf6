package slurm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// site is a host together with the stamp of an action.
type site struct {
	host  runtimes.Host
	stamp runtimes.Stamp
}

// batch is the number of operations in a request. A host accepts 1,024.
const batch = 1000

// do sends operations in one request.
func (s site) do(ctx context.Context, ops ...runtimes.Op) ([]runtimes.Result, error) {
	return s.host.Do(ctx, s.stamp, ops...)
}

// doAll sends any number of operations and discards their results.
func (s site) doAll(ctx context.Context, ops ...runtimes.Op) error {
	for part := range slices.Chunk(ops, batch) {
		if _, err := s.do(ctx, part...); err != nil {
			return err
		}
	}
	return nil
}

// runs reports whether the process of a service runs. state asks for it.
func (s site) runs(ctx context.Context, state runtimes.Op) (bool, error) {
	res, err := s.do(ctx, state)
	return err == nil && res[0].Service.Running, err
}

// exitError returns the error of a tool with a non-zero exit status.
func (s site) exitError(op runtimes.Op, res runtimes.Result) error {
	output := strings.TrimSpace(string(res.Stderr) + "\n" + string(res.Data))
	if len(output) > 600 {
		output = output[:600] + "…"
	}
	return &runtimes.OpError{
		Host: s.host.Name(), Op: "run " + op.Run.Program + " " + strings.Join(op.Run.Args, " "),
		Message: output, Code: runtimes.CodeExit, Exit: res.Exit,
	}
}

// runChecked runs a tool. A non-zero exit status is an error.
func (s site) runChecked(ctx context.Context, op runtimes.Op) (runtimes.Result, error) {
	res, err := s.do(ctx, op)
	if err != nil {
		return runtimes.Result{}, err
	}
	if res[0].Exit != 0 {
		return res[0], s.exitError(op, res[0])
	}
	return res[0], nil
}

func cliOp(conf string, timeout time.Duration, program string, args ...string) runtimes.Op {
	return runtimes.Op{Run: &runtimes.Run{
		Program: program, Args: args, Env: map[string]string{"SLURM_CONF": conf},
		TimeoutMS: int(timeout.Milliseconds()), AllowExit: true,
	}}
}

// digest returns a sha256 as Stat does.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func statOp(paths ...string) runtimes.Op { return runtimes.Op{Stat: &runtimes.Stat{Paths: paths}} }

func readOp(path string) runtimes.Op { return runtimes.Op{Read: &runtimes.ReadFile{Path: path}} }

func removeOp(path string) runtimes.Op { return runtimes.Op{Remove: &runtimes.Remove{Path: path}} }

func removeTreeOp(path string) runtimes.Op {
	return runtimes.Op{Remove: &runtimes.Remove{Path: path, Tree: true}}
}

// removeEmptyOp removes a directory that Berth made, if it is empty.
func removeEmptyOp(path string) runtimes.Op {
	return runtimes.Op{Remove: &runtimes.Remove{Path: path, IfEmpty: true}}
}

func removeOps(paths []string) []runtimes.Op {
	var ops []runtimes.Op
	for _, p := range paths {
		ops = append(ops, removeOp(p))
	}
	return ops
}

// ownDirOp makes a directory that belongs to Berth with all its content.
func ownDirOp(path string, mode uint32, owner string) runtimes.Op {
	return runtimes.Op{Dir: &runtimes.MakeDir{Path: path, Mode: mode, Owner: owner, Group: owner, Own: true}}
}

// dirOp makes a directory, or uses an existing one without a change.
func dirOp(path string, mode uint32, owner string) runtimes.Op {
	return runtimes.Op{Dir: &runtimes.MakeDir{Path: path, Mode: mode, Owner: owner, Group: owner}}
}

func writeOp(path string, f cluster.File) runtimes.Op {
	return runtimes.Op{Write: &runtimes.WriteFile{Path: path, Data: f.Data, Mode: f.Mode, Owner: f.Owner, Group: f.Owner}}
}

func writeOps(rendered map[string]cluster.File) []runtimes.Op {
	var ops []runtimes.Op
	for _, path := range slices.Sorted(maps.Keys(rendered)) {
		ops = append(ops, writeOp(path, rendered[path]))
	}
	return ops
}

func userOps(users []schema.UnixUser, absent bool) []runtimes.Op {
	var ops []runtimes.Op
	for _, u := range users {
		ops = append(ops, runtimes.Op{User: &runtimes.User{Name: u.Name, UID: u.UID, Absent: absent}})
	}
	return ops
}

// makeSharedDirs makes the directories that all units and the distribution's packages
// share. The configuration directory is the first one.
func makeSharedDirs() []runtimes.Op {
	return []runtimes.Op{
		dirOp(profile.EtcDir, 0o755, ""),
		dirOp(profile.MungeEtc, 0o700, profile.MungeUser),
		dirOp(profile.MungeLib, 0o711, profile.MungeUser),
		dirOp(profile.MungeLog, 0o700, profile.MungeUser),
		dirOp(profile.StateDir, 0o755, profile.SlurmUser),
		dirOp(profile.LogDir, 0o755, profile.SlurmUser),
	}
}

// removeSharedDirs removes the shared directories that Berth made and that are empty.
func removeSharedDirs() []runtimes.Op {
	ops := makeSharedDirs()
	for i, op := range ops {
		ops[i] = removeEmptyOp(op.Dir.Path)
	}
	return ops
}

// uidsOp asks a host for the uids of users. They are as declared if it prints uids.
func uidsOp(users []schema.UnixUser) runtimes.Op {
	args := []string{"-u"}
	for _, u := range users {
		args = append(args, u.Name)
	}
	return runtimes.Op{Run: &runtimes.Run{Program: "id", Args: args, TimeoutMS: int(localTimeout.Milliseconds()), AllowExit: true}}
}

func uids(users []schema.UnixUser) string {
	text := ""
	for _, u := range users {
		text += fmt.Sprintln(u.UID)
	}
	return text
}
