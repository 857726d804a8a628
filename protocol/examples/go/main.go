// A client of inferd in Go: stream an answer, embed a text, order documents.
//
//	go run main.go [DIRECTORY]
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const timeout = 60 * time.Second // of silence, before we give up

// A frame has the fields of all frames that we look into.
type frame struct {
	Type       string      `json:"type"`
	Code       string      `json:"code"`
	Message    string      `json:"message"`
	Block      block       `json:"block"`
	Dimensions int         `json:"dimensions"`
	Embeddings [][]float64 `json:"embeddings"`
	Results    []struct {
		Index int `json:"index"`
	} `json:"results"`
}

type block struct {
	Type  string `json:"type"`
	Delta string `json:"delta"`
}

type object map[string]any

// ask sends one request and shows each frame of its answer, the last of which ends it.
func ask(path string, request object, show func(frame)) error {
	connection, err := net.DialTimeout("unix", path, timeout)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := refuseStranger(connection.(*net.UnixConn)); err != nil {
		return err
	}
	connection.SetDeadline(time.Now().Add(timeout))
	if err := json.NewEncoder(connection).Encode(request); err != nil { // with a newline
		return err
	}
	frames := json.NewDecoder(connection) // a Scanner would stop at lines over 64 KiB
	for {
		var next frame
		connection.SetDeadline(time.Now().Add(timeout))
		if err := frames.Decode(&next); errors.Is(err, io.EOF) {
			return errors.New("the connection ended before the answer did")
		} else if err != nil {
			return err
		}
		switch next.Type {
		case "error":
			return fmt.Errorf("%s: %s", next.Code, next.Message)
		case "done", "embeddings", "rerank":
			show(next)
			return nil
		default:
			show(next)
		}
	}
}

// refuseStranger allows root, this user and the uids in INFERD_TRUST_UID to listen.
func refuseStranger(connection *net.UnixConn) error {
	raw, err := connection.SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	var failure error
	err = raw.Control(func(fd uintptr) {
		peer, failure = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		return err
	}
	if peer.Uid == 0 || int(peer.Uid) == os.Geteuid() {
		return nil
	}
	for _, named := range strings.Split(os.Getenv("INFERD_TRUST_UID"), ",") {
		if named == fmt.Sprint(peer.Uid) {
			return nil
		}
	}
	return fmt.Errorf("uid %d listens; to trust it: INFERD_TRUST_UID=%d", peer.Uid, peer.Uid)
}

func showText(f frame) {
	if f.Type == "done" {
		fmt.Println()
	} else if f.Type == "frame" && f.Block.Type == "text" {
		fmt.Print(f.Block.Delta)
	}
}

func showEmbedding(f frame) {
	fmt.Printf("embedding: %d numbers, first", f.Dimensions)
	for i := 0; i < 3 && i < len(f.Embeddings[0]); i++ {
		fmt.Printf(" %.4f", f.Embeddings[0][i])
	}
	fmt.Println()
}

func showRanking(f frame) {
	fmt.Print("ranking:")
	for _, result := range f.Results {
		fmt.Print(" ", result.Index)
	}
	fmt.Println()
}

// find gives the path of a socket in the first directory that has it, or "".
func find(directories []string, leaf string) string {
	for _, directory := range directories {
		path := filepath.Join(directory, leaf)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// directories lists where a daemon's sockets may be, in order.
func directories() []string {
	own := fmt.Sprintf("/tmp/inferd-%d", os.Getuid())
	if runtime := os.Getenv("XDG_RUNTIME_DIR"); runtime != "" {
		own = filepath.Join(runtime, "inferd")
	} else if home := os.Getenv("HOME"); home != "" {
		own = filepath.Join(home, ".inferd", "run")
	}
	return []string{own, "/run/inferd"}
}

func main() {
	places := directories()
	if len(os.Args) > 1 {
		places = os.Args[1:2]
	}
	text := object{"type": "text", "text": "What is the capital of France?"}
	message := object{"role": "user", "content": []object{text}}
	documents := []string{"Berlin is the capital of Germany", "Paris is the capital of France", "Bread is baked"}
	surfaces := []struct {
		leaf    string
		request object
		show    func(frame)
	}{
		{"infer.v2.sock", object{"id": "1", "messages": []object{message}, "max_tokens": 200}, showText},
		{"infer.embed.sock", object{"id": "2", "input": documents[1:2]}, showEmbedding},
		{"infer.rerank.sock", object{"id": "3", "query": "capital of France", "documents": documents}, showRanking},
	}
	asked := 0
	for _, surface := range surfaces {
		path := find(places, surface.leaf)
		if path == "" {
			fmt.Fprintf(os.Stderr, "no %s: skipped\n", surface.leaf)
			continue
		}
		asked++
		if err := ask(path, surface.request, surface.show); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", surface.leaf, err)
			os.Exit(1)
		}
	}
	if asked == 0 {
		fmt.Fprintf(os.Stderr, "no daemon in %s\n", places[0])
		os.Exit(1)
	}
}
