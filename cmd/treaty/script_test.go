// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/treaty-node/treaty/node/httpapi"
)

// TestScript runs the command line's specification, testdata/script. Each script finds $BUYER and $VENDOR, free addresses, and
// the files of the demo: datasets.yaml, policy.yaml, needs.yaml, passphrase.txt. Beside testscript's own commands there are
//
//	exits CODE PROGRAM ARGS…      the exit code is exactly CODE
//	json FILE PATH VALUE          the JSON in FILE (or stdout) has VALUE at PATH, such as checks.0.status; PATH/len is a
//	                              length, PATH/keys the sorted names of members; several lines of JSON are a list
//	capture NAME FILE PATH        the value becomes $NAME
//	mode PERM FILE…               the files have exactly this mode
//	replace FILE OLD NEW          the file is altered; OLD has to be in it
//	ready DIR                     waits for the node on a folder
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("BUYER", freeAddress(t))
			env.Setenv("VENDOR", freeAddress(t))
			for name, text := range map[string]string{"datasets.yaml": demoDatasets, "policy.yaml": demoPolicy, "needs.yaml": demoNeeds, "passphrase.txt": "correct horse battery staple\n"} {
				if err := os.WriteFile(filepath.Join(env.WorkDir, name), []byte(text), 0o600); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: commands(nil),
	})
}

// commands are those that every script has, and more.
func commands(more map[string]func(*testscript.TestScript, bool, []string)) map[string]func(*testscript.TestScript, bool, []string) {
	all := map[string]func(*testscript.TestScript, bool, []string){
		"exits": exits, "json": jsonHas, "capture": capture, "mode": mode, "replace": replace, "ready": ready,
	}
	maps.Copy(all, more)
	return all
}

func arguments(ts *testscript.TestScript, neg bool, args []string, least int) {
	if neg || len(args) < least {
		ts.Fatalf("usage: see TestScript")
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2)
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// at finds the value at a path of a JSON text.
func at(ts *testscript.TestScript, file, path string) any {
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile(file)))
	dec.UseNumber()
	var all []any
	for dec.More() {
		var v any
		ts.Check(dec.Decode(&v))
		all = append(all, v)
	}
	var v any = all
	if len(all) == 1 {
		v = all[0]
	}
	path, size, _ := strings.Cut(path, "/")
	for step := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			if step == "" {
				continue
			}
			if v = in[step]; v == nil {
				ts.Fatalf("%s has no %s: %v", file, path, in)
			}
		case []any:
			if step == "" {
				continue
			}
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(in) {
				ts.Fatalf("%s has no %s: %v", file, path, in)
			}
			v = in[i]
		default:
			ts.Fatalf("%s has no %s: %v", file, path, in)
		}
	}
	object, _ := v.(map[string]any)
	list, _ := v.([]any)
	switch size {
	case "len":
		return len(object) + len(list)
	case "keys":
		return strings.Join(slices.Sorted(maps.Keys(object)), " ")
	}
	return v
}

func jsonHas(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3)
	if got := fmt.Sprint(at(ts, args[0], args[1])); got != args[2] {
		ts.Fatalf("%s is %q, want %q", args[1], got, args[2])
	}
}

func capture(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3)
	ts.Setenv(args[0], fmt.Sprint(at(ts, args[1], args[2])))
}

func mode(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2)
	for _, file := range args[1:] {
		info, err := os.Lstat(ts.MkAbs(file))
		ts.Check(err)
		if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[0] {
			ts.Fatalf("%s has mode %s, want %s", file, got, args[0])
		}
	}
}

func replace(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3)
	was := ts.ReadFile(args[0])
	is := strings.Replace(was, args[1], args[2], 1)
	if is == was {
		ts.Fatalf("%s does not have %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(is), 0o600))
}

func ready(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1)
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for {
		err := httpapi.NewAdminClient(ts.MkAbs(args[0])).Get(ctx, "/status", &httpapi.Status{})
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			ts.Fatalf("%s is not up: %v", args[0], err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestEveryVerbExplainsItself: every verb says in one line what it does, shows an example that begins with its own name, and
// every flag is explained.
func TestEveryVerbExplainsItself(t *testing.T) {
	root := (&cli{}).root()
	var walk func(cmd *cobra.Command)
	verbs := 0
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd == root {
			return
		}
		verbs++
		name := strings.TrimPrefix(cmd.CommandPath(), "treaty ")
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short text %q", name, cmd.Short)
		}
		if !strings.HasPrefix(cmd.Example, "  treaty "+name) {
			t.Errorf("%s: the example does not show it: %q", name, cmd.Example)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: --%s is not explained", name, f.Name)
			}
		})
	}
	walk(root)
	if verbs < 20 {
		t.Errorf("%d verbs", verbs)
	}
}

// TestVerbsDocumented: docs/cli.md lists every verb, with every flag of it, and none that is not there.
func TestVerbsDocumented(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	verbs, flags, ok := strings.Cut(string(data), "\n## Flags\n")
	if !ok {
		t.Fatal("docs/cli.md has no section Flags")
	}
	flags, _, _ = strings.Cut(flags, "\n## ")
	documented := map[string][]string{} // verb → flags
	word := regexp.MustCompile(`^[a-z][a-z-]*$`)
	for _, cell := range firstCells(verbs) { // trust allow\|deny\|forget DID
		fields := strings.Fields(strings.ReplaceAll(cell, `\|`, "|"))
		names := strings.Split(fields[min(1, len(fields)-1)], "|")
		for _, name := range names {
			switch verb := fields[0] + " " + name; {
			case len(fields) == 1 || !word.MatchString(name):
				documented[fields[0]] = nil
			default:
				documented[verb] = nil
			}
		}
	}
	for row := range strings.Lines(flags) {
		cells := strings.Split(row, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		verb := strings.Trim(cells[1], " `")
		if _, ok := documented[verb]; !ok {
			t.Errorf("docs/cli.md has flags of %q, and not the verb", verb)
		}
		for _, m := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(cells[2], -1) {
			documented[verb] = append(documented[verb], m[1])
		}
	}
	root := (&cli{}).root()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.HasSubCommands() {
			return
		}
		verb := strings.TrimPrefix(cmd.CommandPath(), "treaty ")
		listed, ok := documented[verb]
		if !ok {
			t.Errorf("docs/cli.md does not list %s", verb)
		}
		delete(documented, verb)
		var flags []string
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
		if slices.Sort(listed); !slices.Equal(listed, flags) {
			t.Errorf("docs/cli.md: %s has the flags %v, not %v", verb, flags, listed)
		}
	}
	walk(root)
	for verb := range documented {
		t.Errorf("docs/cli.md: there is no verb %s", verb)
	}
}

// firstCells are what stands in back quotes at the beginning of a table's rows.
func firstCells(page string) (cells []string) {
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(page, -1) {
		cells = append(cells, m[1])
	}
	return cells
}
