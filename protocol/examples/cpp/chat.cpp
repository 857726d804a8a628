// Ask one question and print the answer as it comes.
//
//     c++ -std=c++17 -pthread -o chat chat.cpp && ./chat [DIRECTORY]

#include <chrono>
#include <cstdio>
#include <thread>

#include "inferd/client.hpp"

int main(int argc, char** argv) {
  inferd::Config config;
  if (argc > 1) config.directory = argv[1];
  inferd::InferenceClient client(config);

  bool is_over = false, has_failed = false;
  inferd::ChatRequest request;
  request.messages = {{"user", "What is the capital of France?"}};
  client.chat(
      request, [](const std::string& token) { std::printf("%s", token.c_str()); },
      [&](const inferd::ChatResponse& response) {
        is_over = true;
        has_failed = response.error;
        if (response.error) std::fprintf(stderr, "%s\n", response.error_message.c_str());
      });

  while (!is_over) {  // your loop: it draws, plays and listens, and never waits for an answer
    client.poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::printf("\n");
  return has_failed ? 1 : 0;
}
